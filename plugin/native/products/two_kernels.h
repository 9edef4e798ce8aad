// A product of the job, computed by the faster one of two of TensorFlow's kernels.
//
// Until a program of the job is stitched (stitchfleet_let_kernels_compete), the job's own kernel runs alone. Then
//
//     calls 1, 2     both kernels run and are compared; the results are those of the job's own kernel
//     calls 3 to 10  each kernel in turn, timed
//     then           the other kernel if its shortest time is clearly less, for tensors of these shapes
//
// The other kernel's sums are rounded differently. If the two differ by more than rounding, or if it fails, the own one stays.

#ifndef STITCHFLEET_PLUGIN_NATIVE_PRODUCTS_TWO_KERNELS_H_
#define STITCHFLEET_PLUGIN_NATIVE_PRODUCTS_TWO_KERNELS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "loop/inner_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace stitchfleet {

// What a call of the other kernel depends on. terms: the number of products in each element of the result. parts: the number of sums,
// rounded to the result's dtype, that one of the kernels makes of them and adds up.
struct CallShapes {
  std::vector<int64_t> extents;
  int64_t terms = 0, parts = 1;
};

// An op of one output whose inputs are those of the job's own op.
class TwoKernelsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) override;

 protected:
  // Whether the other kernel can compute this call; if so, fills in `call`. If it cannot, valid or not, the job's own kernel
  // computes the call, or fails as in the job's own graph.
  virtual bool Fits(tensorflow::OpKernelContext* ctx, CallShapes* call) const = 0;
  // Compute the call's result by the job's own kernel, and by the other one. `params`: from Inherit.
  virtual Status Own(tensorflow::OpKernelContext* ctx, tensorflow::OpKernelContext::Params& params, tensorflow::Tensor* result) = 0;
  virtual Status Other(tensorflow::OpKernelContext* ctx, tensorflow::OpKernelContext::Params& params, tensorflow::Tensor* result) = 0;

 private:
  struct Race;
  Race* RaceOf(std::vector<int64_t> shapes);
  bool Refused(Race* race, const Status& status) const;

  std::mutex mutex_;
  std::map<std::vector<int64_t>, std::unique_ptr<Race>> races_;
};

// The shape function of the TensorFlow op that `op` names, for an op with the same operands and attributes.
template <const char* op>
Status ShapeOfOwn(tensorflow::shape_inference::InferenceContext* c) {
  const tensorflow::OpRegistrationData* found;
  TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUp(op, &found));
  return found->shape_inference_fn(c);
}

// A NodeDef of another operator with the name, the device and the dtype T of the op under construction.
tensorflow::NodeDef NodeLike(tensorflow::OpKernelConstruction* c, const char* op);

// A tensor's elements in another shape, on the same buffer. INTERNAL if that shape has another number of elements.
Status Reshaped(const tensorflow::Tensor& tensor, const tensorflow::TensorShape& shape, tensorflow::Tensor* result);

// A tensor as a matrix whose columns are the last dimension, which is not empty.
Status AsMatrix(const tensorflow::Tensor& tensor, tensorflow::Tensor* matrix);

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_PRODUCTS_TWO_KERNELS_H_
