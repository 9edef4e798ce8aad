// The Stitch op of any device: one cluster of TensorFlow's operators run as one generated kernel, with TensorFlow's own operators as
// fallback (stitch_op.cc says what happens when). What a device does in its own way are the virtual functions: those here are the
// processor's, device_stitch_op.cc has a GPU's.

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

  void Compute(tensorflow::OpKernelContext* ctx) override;

 protected:
  using Addresses = absl::InlinedVector<void*, 8>;

  // What kernels of this op's device are made for, in JSON; "" for the processor. The pointer stays valid.
  virtual const std::string& Device(tensorflow::OpKernelContext* ctx) const;

  // Begins the kernel. `outputs`: where each of its outputs belongs.
  virtual absl::Status Launch(tensorflow::OpKernelContext* ctx, const Executable& executable, const Addresses& outputs,
                              const Variables& variables);

  // The op's inputs as the fallback's function takes them.
  virtual absl::Status FallbackArguments(tensorflow::OpKernelContext* ctx, std::vector<tensorflow::Tensor>* arguments);

  // Memory for an output of a kernel that is verified.
  virtual absl::Status AllocateVerified(tensorflow::OpKernelContext* ctx, const OutputSpec& spec, tensorflow::Tensor* output) const;

  // Whether such a kernel kept to its outputs: UNAVAILABLE where it did not, or cannot be asked.
  virtual absl::Status CheckBorders(tensorflow::OpKernelContext* ctx, const std::vector<tensorflow::Tensor>& outputs) const {
    return absl::OkStatus();
  }

  // Waits until the device has done what it was given so far.
  virtual absl::Status Finish(tensorflow::OpKernelContext* ctx) { return absl::OkStatus(); }

  virtual absl::Status CompareOutput(tensorflow::OpKernelContext* ctx, const Executable& executable, int output,
                                     const tensorflow::Tensor& expected, const tensorflow::Tensor& actual, Comparison* comparison);

  // A copy on the same device.
  virtual absl::Status Copy(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& given, tensorflow::Tensor* copy) const;

  // The same tensor in the processor's memory.
  virtual absl::Status ToHost(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& given, tensorflow::Tensor* copy) const;

  int host_arguments() const { return host_arguments_; }

 private:
  static bool IsRefused(Signature& signature, const absl::Status& status);
  Signature* FindSignature(tensorflow::OpKernelContext* ctx, const Variables& variables);
  std::vector<InputSample> Samples(tensorflow::OpKernelContext* ctx, const Variables& variables);
  bool Fits(tensorflow::OpKernelContext* ctx, const Executable* executable) const;
  bool RunStitched(tensorflow::OpKernelContext* ctx, Signature& signature, Variables& variables);
  absl::Status RunLocked(tensorflow::OpKernelContext* ctx, const Executable& executable, Variables& variables, bool* are_met);
  void RunFallback(tensorflow::OpKernelContext* ctx, Signature* verify, Variables& variables);
  absl::Status UnderOwnName(const absl::Status& status) const;
  void Verify(tensorflow::OpKernelContext* ctx, Signature& signature, Variables& variables,
              const std::vector<tensorflow::Tensor>& results, uint64_t fallback_ns);

  std::vector<int> value_args_, variable_args_, written_args_;
  int host_arguments_ = 0;
  bool demands_ = false;
  std::vector<std::string> member_names_;
  const FallbackFunction* fallback_ = nullptr;
  Cluster* cluster_ = nullptr;
  std::atomic<bool> has_signature_{false};
  Parallelism parallelism_;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_STITCH_OP_H_
