// Operators that the Loop op computes itself in the usual cases: elements of lists, and the arithmetic of counters.
//
// Calling a kernel takes half a microsecond, longer than these operators take. A list made from one tensor has that tensor's rows as
// elements, without a copy if they are aligned; the kernel would allocate and copy each. Unusual cases (an index out of range, an
// element that was never set, shapes that differ) are left to TensorFlow's kernel, which raises its error.

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
  // A shortcut that is never taken, for operators without one.
  Shortcut() = default;
  explicit Shortcut(const tensorflow::NodeDef& node);

  // Computes the operator's results if the case is a usual one. Returns false, with nothing changed, if it is not. An operand without
  // other references to its buffer may be moved into a result.
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
