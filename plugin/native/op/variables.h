// The variables of one call of a StitchfleetUpdate op: looked up by their handles, locked together, read and written in place.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_VARIABLES_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_VARIABLES_H_

#include <algorithm>
#include <vector>

#include "op/registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "versions/status.h"

namespace stitchfleet {

class Variables {
 public:
  Variables() = default;
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() { Unlock(); }

  // Looks up the variables of the inputs `handles`; `written`: those that will be written. Returns false if one is not initialized,
  // or if two handles are of one variable that is written: then the result depends on the order of the original operators.
  bool Find(tensorflow::OpKernelContext* ctx, const std::vector<int>& handles, const std::vector<int>& written) {
    if (handles.empty()) return true;
    of_input_.assign(ctx->num_inputs(), -1);
    found_.resize(handles.size());
    for (size_t k = 0; k < handles.size(); ++k) {
      Entry& entry = found_[k];
      of_input_[handles[k]] = static_cast<int>(k);
      if (!tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, handles[k]), &entry.variable).ok()) return false;
      tensorflow::tf_shared_lock lock(*entry.variable->mu());
      const tensorflow::Tensor& value = *entry.variable->tensor();
      if (!value.IsInitialized()) return false;
      entry.shape = value.shape();
      entry.dtype = value.dtype();
    }
    for (int i : written) found_[of_input_[i]].is_written = true;
    lock_order_.resize(found_.size());
    for (size_t k = 0; k < found_.size(); ++k) lock_order_[k] = static_cast<int>(k);
    std::sort(lock_order_.begin(), lock_order_.end(),
              [this](int a, int b) { return found_[a].variable->mu() < found_[b].variable->mu(); });
    for (size_t k = 1; k < lock_order_.size(); ++k) {
      Entry& entry = found_[lock_order_[k]];
      const Entry& before = found_[lock_order_[k - 1]];
      if (entry.variable.get() != before.variable.get()) continue;
      if (entry.is_written || before.is_written) return false;
      entry.is_repeated = true;
    }
    return true;
  }

  // Shape and type of an input; for a variable's handle those of the variable's value.
  const tensorflow::TensorShape& Shape(tensorflow::OpKernelContext* ctx, int input) const {
    const Entry* entry = Of(input);
    return entry == nullptr ? ctx->input(input).shape() : entry->shape;
  }
  tensorflow::DataType Type(tensorflow::OpKernelContext* ctx, int input) const {
    const Entry* entry = Of(input);
    return entry == nullptr ? ctx->input(input).dtype() : entry->dtype;
  }

  // Locks all variables, those to be written exclusively, in the order of their mutexes' addresses (as TensorFlow's training
  // operators do). Returns false, with nothing locked, if one has changed its shape since Find.
  bool Lock() {
    for (int k : lock_order_) {
      if (found_[k].is_repeated) {
        // the first handle has locked it, and a second lock could wait behind a writer that waits for the first
      } else if (found_[k].is_written) {
        found_[k].variable->mu()->lock();
      } else {
        found_[k].variable->mu()->lock_shared();
      }
      ++locked_;
    }
    for (const Entry& entry : found_) {
      const tensorflow::Tensor& value = *entry.variable->tensor();
      if (!value.IsInitialized() || value.shape() != entry.shape) {
        Unlock();
        return false;
      }
    }
    return true;
  }

  void Unlock() {
    while (locked_ > 0) {
      Entry& entry = found_[lock_order_[--locked_]];
      if (entry.is_repeated) {
      } else if (entry.is_written) {
        entry.variable->mu()->unlock();
      } else {
        entry.variable->mu()->unlock_shared();
      }
    }
  }

  // Holds the present values: TensorFlow's operators then write new ones into other buffers. Variables with sparse updates
  // (copy_on_read_mode) are an exception, since they are always written in place; they are copied if this op writes them.
  template <typename Copy>
  Status Hold(const Copy& copy) {
    for (Entry& entry : found_) {
      tensorflow::tf_shared_lock lock(*entry.variable->mu());
      const tensorflow::Tensor& value = *entry.variable->tensor();
      if (entry.is_written && entry.variable->copy_on_read_mode.load()) {
        TF_RETURN_IF_ERROR(copy(value, &entry.held));
      } else {
        entry.held = value;
      }
      entry.is_held = true;
    }
    return Ok();
  }

  // The value of an input; for a variable's handle the held value, or without one the present value (only between Lock and Unlock).
  const tensorflow::Tensor& Value(tensorflow::OpKernelContext* ctx, int input) const {
    const Entry* entry = Of(input);
    if (entry == nullptr) return ctx->input(input);
    return entry->is_held ? entry->held : *entry->variable->tensor();
  }

  // The variable's own tensor. Use it only between Lock and Unlock.
  tensorflow::Tensor* Target(int input) { return found_[of_input_[input]].variable->tensor(); }

  // Appends the present values of the variables of the inputs `inputs`.
  void AppendPresent(const std::vector<int>& inputs, std::vector<tensorflow::Tensor>* values) {
    for (int i : inputs) {
      tensorflow::Var& variable = *found_[of_input_[i]].variable;
      tensorflow::tf_shared_lock lock(*variable.mu());
      values->push_back(*variable.tensor());
    }
  }

 private:
  struct Entry {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    tensorflow::TensorShape shape;
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
    bool is_written = false;
    bool is_repeated = false;  // whether an earlier entry in the order of locks is the same variable
    bool is_held = false;  // held.IsInitialized() would not do: a default-constructed tensor is initialized, and empty
    tensorflow::Tensor held;
  };

  const Entry* Of(int input) const {
    return of_input_.empty() || of_input_[input] < 0 ? nullptr : &found_[of_input_[input]];
  }

  std::vector<int> of_input_;
  std::vector<Entry> found_;
  std::vector<int> lock_order_;
  size_t locked_ = 0;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_VARIABLES_H_
