#include "loop/shortcuts.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"  // what Variant needs of a TensorList
#include "tensorflow/core/kernels/tensor_list.h"

namespace stitchfleet {

using tensorflow::Allocator;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorList;
using tensorflow::TensorShape;
using tensorflow::TensorValue;
using Operands = absl::Span<const TensorValue>;

namespace {

constexpr int64_t kAlignment = Allocator::kAllocatorAlignment;
constexpr int64_t kMostBytesOnOneThread = 1 << 20;

TensorList* ListOf(const TensorValue& value) {
  if (value->dtype() != tensorflow::DT_VARIANT || value->dims() != 0) return nullptr;
  return value->scalar<tensorflow::Variant>()().get<TensorList>();
}

// Moves a list into `result` if there is no other reference to it, else copies it. Returns the list in `result`, which may be
// changed.
TensorList* Changeable(const TensorValue& value, Tensor* result) {
  const TensorList* list = ListOf(value);
  if (value->RefCountIsOne() && list->RefCountIsOne()) {
    *result = std::move(*value.tensor);
  } else {
    Tensor copy(tensorflow::DT_VARIANT, TensorShape());
    copy.scalar<tensorflow::Variant>()() = list->Copy();
    *result = std::move(copy);
  }
  return result->scalar<tensorflow::Variant>()().get<TensorList>();
}

bool IsScalar(const TensorValue& value, tensorflow::DataType dtype) { return value->dtype() == dtype && value->dims() == 0; }

bool AreScalars(Operands operands, tensorflow::DataType dtype) { return IsScalar(operands[0], dtype) && IsScalar(operands[1], dtype); }

// Reads an operand as the index of a list's element. Returns false if it is out of range.
bool ReadIndex(const TensorValue& value, const TensorList& list, int64_t* index) {
  if (!IsScalar(value, tensorflow::DT_INT32)) return false;
  *index = value->scalar<tensorflow::int32>()();
  return *index >= 0 && *index < static_cast<int64_t>(list.tensors().size());
}

// Reads the operand of TensorFlow's list operators that gives the elements' shape: -1, or a vector of extents with -1 for unknown
// ones.
bool ReadShape(const TensorValue& value, PartialTensorShape* shape) {
  const auto read = [&value, shape](const auto* extents) {
    if (value->dims() == 0) {
      *shape = PartialTensorShape();
      return extents[0] == -1;
    }
    return value->dims() == 1 && PartialTensorShape::MakePartialShape(extents, static_cast<int>(value->NumElements()), shape).ok();
  };
  if (value->dtype() == tensorflow::DT_INT32) return read(value->unaligned_flat<tensorflow::int32>().data());
  return value->dtype() == tensorflow::DT_INT64 && read(value->unaligned_flat<int64_t>().data());
}

char* Bytes(const Tensor& tensor) { return const_cast<char*>(tensor.tensor_data().data()); }

template <typename T, typename Result, typename Function>
bool Compute(Operands operands, Tensor* results) {
  results[0] = Tensor(static_cast<Result>(Function()(operands[0]->scalar<T>()(), operands[1]->scalar<T>()())));
  return true;
}

// Signed arithmetic wraps around, as TensorFlow's does.
template <template <typename> class Function>
bool Computing(const Shortcut&, Operands operands, Allocator*, Tensor* results) {
  struct Wrapping {
    int32_t operator()(int32_t a, int32_t b) const { return static_cast<int32_t>(Function<uint32_t>()(a, b)); }
    int64_t operator()(int64_t a, int64_t b) const { return static_cast<int64_t>(Function<uint64_t>()(a, b)); }
  };
  if (AreScalars(operands, tensorflow::DT_INT32)) return Compute<int32_t, int32_t, Wrapping>(operands, results);
  return AreScalars(operands, tensorflow::DT_INT64) && Compute<int64_t, int64_t, Wrapping>(operands, results);
}

template <template <typename> class Function>
bool Comparing(const Shortcut&, Operands operands, Allocator*, Tensor* results) {
  if (AreScalars(operands, tensorflow::DT_INT32)) return Compute<int32_t, bool, Function<int32_t>>(operands, results);
  return AreScalars(operands, tensorflow::DT_INT64) && Compute<int64_t, bool, Function<int64_t>>(operands, results);
}

template <template <typename> class Function>
bool Deciding(const Shortcut&, Operands operands, Allocator*, Tensor* results) {
  return AreScalars(operands, tensorflow::DT_BOOL) && Compute<bool, bool, Function<bool>>(operands, results);
}

}  // namespace

struct Shortcuts {
  static bool GetItem(const Shortcut& own, Operands operands, Allocator*, Tensor* results) {
    const TensorList* list = ListOf(operands[0]);
    int64_t index;
    if (list == nullptr || list->element_dtype != own.element_dtype_ || !ReadIndex(operands[1], *list, &index)) return false;
    const Tensor& item = list->tensors()[index];
    if (item.dtype() == tensorflow::DT_INVALID) return false;
    results[0] = item;
    return true;
  }

  static bool SetItem(const Shortcut& own, Operands operands, Allocator*, Tensor* results) {
    const TensorList* list = ListOf(operands[0]);
    int64_t index;
    if (list == nullptr || !MayHold(*list, own, *operands[2].tensor) || !ReadIndex(operands[1], *list, &index)) return false;
    Changeable(operands[0], results)->tensors()[index] = *operands[2].tensor;
    return true;
  }

  static bool PushBack(const Shortcut& own, Operands operands, Allocator*, Tensor* results) {
    const TensorList* list = ListOf(operands[0]);
    if (list == nullptr || !MayHold(*list, own, *operands[1].tensor)) return false;
    if (list->max_num_elements != -1 && static_cast<int64_t>(list->tensors().size()) >= list->max_num_elements) return false;
    Changeable(operands[0], results)->tensors().push_back(*operands[1].tensor);
    return true;
  }

  static bool PopBack(const Shortcut& own, Operands operands, Allocator*, Tensor* results) {
    const TensorList* list = ListOf(operands[0]);
    if (list == nullptr || list->element_dtype != own.element_dtype_ || list->tensors().empty()) return false;
    if (list->tensors().back().dtype() == tensorflow::DT_INVALID) return false;
    TensorList* rest = Changeable(operands[0], results);
    results[1] = std::move(rest->tensors().back());
    rest->tensors().pop_back();
    return true;
  }

  static bool FromTensor(const Shortcut&, Operands operands, Allocator* allocator, Tensor* results) {
    const Tensor& rows = *operands[0].tensor;
    PartialTensorShape shape;
    if (rows.dims() < 1 || rows.NumElements() == 0 || !tensorflow::DataTypeCanUseMemcpy(rows.dtype())) return false;
    TensorShape row_shape = rows.shape();
    row_shape.RemoveDim(0);
    if (!ReadShape(operands[1], &shape) || !shape.IsCompatibleWith(row_shape)) return false;
    const int64_t size = tensorflow::DataTypeSize(rows.dtype()), elements = row_shape.num_elements(), bytes = elements * size;
    Tensor aligned = rows;  // with aligned rows
    if (bytes % kAlignment != 0 || !rows.IsAligned()) {
      const int64_t stride = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      aligned = Tensor(allocator, rows.dtype(), {rows.dim_size(0), stride / size});
      if (!aligned.IsInitialized()) return false;
      for (int64_t i = 0; i < rows.dim_size(0); ++i) memcpy(Bytes(aligned) + i * stride, Bytes(rows) + i * bytes, bytes);
    }
    TensorList list;
    list.element_dtype = rows.dtype();
    list.element_shape = shape;
    list.tensors().reserve(rows.dim_size(0));
    for (int64_t i = 0; i < rows.dim_size(0); ++i) {
      Tensor row = aligned.SubSlice(i);
      Tensor shaped(rows.dtype());
      if (!shaped.CopyFrom(row.NumElements() == elements ? row : row.Slice(0, elements), row_shape)) return false;
      list.tensors().push_back(std::move(shaped));
    }
    Tensor result(tensorflow::DT_VARIANT, TensorShape());
    result.scalar<tensorflow::Variant>()() = std::move(list);
    results[0] = std::move(result);
    return true;
  }

  static bool Stack(const Shortcut& own, Operands operands, Allocator* allocator, Tensor* results) {
    const TensorList* list = ListOf(operands[0]);
    PartialTensorShape shape;
    if (list == nullptr || list->element_dtype != own.element_dtype_ || !tensorflow::DataTypeCanUseMemcpy(own.element_dtype_)) return false;
    const int64_t count = static_cast<int64_t>(list->tensors().size());
    if (count == 0 || (own.num_elements_ != -1 && own.num_elements_ != count) || !ReadShape(operands[1], &shape)) return false;
    const Tensor& first = list->tensors()[0];
    const auto is_alike = [&first](const Tensor& item) { return item.dtype() == first.dtype() && item.shape() == first.shape(); };
    if (first.dtype() != own.element_dtype_ || !std::all_of(list->tensors().begin(), list->tensors().end(), is_alike)) return false;
    if (!shape.IsCompatibleWith(first.shape()) || !list->element_shape.IsCompatibleWith(first.shape())) return false;
    const int64_t bytes = static_cast<int64_t>(first.tensor_data().size());
    if (bytes * count > kMostBytesOnOneThread) return false;
    TensorShape stacked = first.shape();
    stacked.InsertDim(0, count);
    Tensor result(allocator, first.dtype(), stacked);
    if (!result.IsInitialized()) return false;
    for (int64_t i = 0; i < count; ++i) memcpy(Bytes(result) + i * bytes, Bytes(list->tensors()[i]), bytes);
    results[0] = std::move(result);
    return true;
  }

  static bool MayHold(const TensorList& list, const Shortcut& own, const Tensor& item) {
    return list.element_dtype == own.element_dtype_ && item.dtype() == own.element_dtype_ && list.element_shape.IsCompatibleWith(item.shape());
  }

  static const std::unordered_map<std::string, Shortcut::Function>& All() {
    static const auto& all = *new std::unordered_map<std::string, Shortcut::Function>{
        {"TensorListGetItem", GetItem},
        {"TensorListSetItem", SetItem},
        {"TensorListPushBack", PushBack},
        {"TensorListPopBack", PopBack},
        {"TensorListFromTensor", FromTensor},
        {"TensorListStack", Stack},
        {"AddV2", Computing<std::plus>},
        {"Add", Computing<std::plus>},
        {"Sub", Computing<std::minus>},
        {"Mul", Computing<std::multiplies>},
        {"Less", Comparing<std::less>},
        {"LessEqual", Comparing<std::less_equal>},
        {"Greater", Comparing<std::greater>},
        {"GreaterEqual", Comparing<std::greater_equal>},
        {"LogicalAnd", Deciding<std::logical_and>},
        {"LogicalOr", Deciding<std::logical_or>},
    };
    return all;
  }
};

Shortcut::Shortcut(const tensorflow::NodeDef& node) {
  const auto found = Shortcuts::All().find(node.op());
  if (found == Shortcuts::All().end()) return;
  function_ = found->second;
  const auto dtype = node.attr().find("element_dtype"), count = node.attr().find("num_elements");
  if (dtype != node.attr().end()) element_dtype_ = dtype->second.type();
  if (count != node.attr().end()) num_elements_ = count->second.i();
}

}  // namespace stitchfleet
