// The Stitch op: runs one cluster of TensorFlow's operators as one generated kernel, with TensorFlow's own operators as fallback
// (stitch_op.cc describes the states). The virtual functions depend on the device: this class implements them for the CPU,
// device_stitch_op.cc for a GPU.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_STITCH_OP_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_STITCH_OP_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "guard/compare.h"
#include "op/fallback_function.h"
#include "op/parallelism.h"
#include "op/registry.h"
#include "op/variables.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stitchfleet {

class StitchOp : public tensorflow::OpKernel {
 public:
  explicit StitchOp(tensorflow::OpKernelConstruction* c);
  ~StitchOp() override {
    if (number_ >= 0) fallback_->GiveBack(number_);
  }

  void Compute(tensorflow::OpKernelContext* ctx) override;

 protected:
  using Addresses = absl::InlinedVector<void*, 8>;

  // The device that kernels are built for, in JSON; "" for the CPU. The reference stays valid.
  virtual const std::string& Device(tensorflow::OpKernelContext* ctx) const;

  // Starts the kernel. `outputs`: the addresses of its outputs.
  virtual Status Launch(tensorflow::OpKernelContext* ctx, const Executable& executable, const Addresses& outputs,
                              const Variables& variables);

  // The arguments of the fallback's function: the op's inputs, each on the device where the function expects it.
  virtual Status FallbackArguments(tensorflow::OpKernelContext* ctx, std::vector<tensorflow::Tensor>* arguments);

  // Allocates an output.
  virtual Status AllocateOutput(tensorflow::OpKernelContext* ctx, int output, const tensorflow::TensorShape& shape,
                                tensorflow::Tensor** made) const;

  // Allocates an output of a kernel that is being verified.
  virtual Status AllocateVerified(tensorflow::OpKernelContext* ctx, const OutputSpec& spec, tensorflow::Tensor* output) const;

  // Checks that a kernel that is being verified has written only to its `outputs`: UNAVAILABLE if it has not, or if that cannot
  // be checked.
  virtual Status CheckBorders(tensorflow::OpKernelContext* ctx, const std::vector<tensorflow::Tensor>& outputs) const {
    return Ok();
  }

  // Waits until the device has finished all work given to it so far.
  virtual Status Finish(tensorflow::OpKernelContext* ctx) { return Ok(); }

  // Compares one output of the fallback (`expected`) with the kernel's (`actual`), within the executable's tolerance for it.
  virtual Status CompareOutput(tensorflow::OpKernelContext* ctx, const Executable& executable, int output,
                                     const tensorflow::Tensor& expected, const tensorflow::Tensor& actual, Comparison* comparison);

  // Copies a tensor on its device.
  virtual Status Copy(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& given, tensorflow::Tensor* copy) const;

  // The same tensor in the host's memory; a tensor that is there already is not copied.
  virtual Status ToHost(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& given, tensorflow::Tensor* copy) const;

  // Number of leading arguments that are in the host's memory on every device (value arguments and variables' handles).
  int host_arguments() const { return host_arguments_; }

 private:
  static bool IsRefused(Signature& signature, const Status& status);
  Signature* FindSignature(tensorflow::OpKernelContext* ctx, const Variables& variables);
  std::vector<InputSample> Samples(tensorflow::OpKernelContext* ctx, const Variables& variables);
  bool Fits(tensorflow::OpKernelContext* ctx, const Executable* executable) const;
  bool RunStitched(tensorflow::OpKernelContext* ctx, Signature& signature, Variables& variables);
  Status RunLocked(tensorflow::OpKernelContext* ctx, const Executable& executable, Variables& variables, bool* are_met);
  void RunFallback(tensorflow::OpKernelContext* ctx, Signature* verify, Variables& variables);
  Status UnderOwnName(const Status& status) const;
  void Verify(tensorflow::OpKernelContext* ctx, Signature& signature, Variables& variables,
              const std::vector<tensorflow::Tensor>& results, uint64_t fallback_ns);

  std::vector<int> value_args_, variable_args_, written_args_;
  int host_arguments_ = 0;
  bool demands_ = false;
  std::vector<std::string> member_names_;
  const FallbackFunction* fallback_ = nullptr;
  int number_ = -1;  // of the fallback's instance
  Cluster* cluster_ = nullptr;
  std::atomic<bool> has_signature_{false};
  Parallelism parallelism_;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_STITCH_OP_H_
