// What the Loop op does itself where the case is the usual one: elements of lists, and the arithmetic of counters.
//
// Calling a kernel takes half a microsecond, more than these take. A list made of one tensor has that tensor's rows as elements, without
// a copy where they are aligned; the kernel would allocate and copy each. Whatever is unusual (an index out of range, an element that
// nobody has set, shapes that differ) is left to TensorFlow's kernel, with its error.

#ifndef STITCHFLEET_PLUGIN_NATIVE_LOOP_SHORTCUTS_H_
#define STITCHFLEET_PLUGIN_NATIVE_LOOP_SHORTCUTS_H_

#include "absl/types/span.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace stitchfleet {

class Shortcut {
 public:
  // One that is never taken, for operators that have none.
  Shortcut() = default;
  explicit Shortcut(const tensorflow::NodeDef& node);

  // Whether it did what the operator's kernel would do. An operand whose buffer nobody else holds may be moved into a result. False:
  // nothing has changed.
  bool Take(absl::Span<const tensorflow::TensorValue> operands, tensorflow::Allocator* allocator, tensorflow::Tensor* results) const {
    return function_ != nullptr && function_(*this, operands, allocator, results);
  }

 private:
  using Function = bool (*)(const Shortcut&, absl::Span<const tensorflow::TensorValue>, tensorflow::Allocator*, tensorflow::Tensor*);
  friend struct Shortcuts;

  Function function_ = nullptr;
  tensorflow::DataType element_dtype_ = tensorflow::DT_INVALID;
  tensorflow::int64 num_elements_ = -1;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_LOOP_SHORTCUTS_H_
