// One kernel of TensorFlow's for both arms of a job.
//
// For some *seeded* stateful random ops TensorFlow has no stateless op with the same numbers (random_stream.cc), since they draw a number
// of times that depends on the numbers. Their kernel itself is shared: both arms get this op in their place, and whichever runs calls the
// same kernel, which goes on in its sequence.

#include <memory>
#include <string>
#include <vector>

#include "graph/shared_by_name.h"
#include "loop/inner_kernels.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "versions/status.h"

namespace stitchfleet {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// node: the NodeDef of the operator in whose place this one is, serialized. stream: its name, equal in both arms.
REGISTER_OP("StitchfleetRandomKernel")
    .Input("operands: Tin")
    .Output("results: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 1")
    .Attr("node: string")
    .Attr("stream: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

class RandomKernelOp : public OpKernel {
 public:
  explicit RandomKernelOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string node, stream;
    OP_REQUIRES_OK(c, c->GetAttr("node", &node));
    OP_REQUIRES_OK(c, c->GetAttr("stream", &stream));
    tensorflow::NodeDef own;
    OP_REQUIRES(c, own.ParseFromString(node), tensorflow::errors::InvalidArgument("node is not a NodeDef"));
    Status made;
    kernel_ = SharedByName<OpKernel>(stream, [c, &own, &made] {
      std::unique_ptr<OpKernel> kernel;
      made = MakeLoneKernel(c, own, {c->input_types().begin(), c->input_types().end()}, &kernel);
      return std::shared_ptr<OpKernel>(std::move(kernel));
    });
    OP_REQUIRES_OK(c, made);
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Tensor> operands(ctx->num_inputs()), results(ctx->num_outputs());
    std::vector<tensorflow::TensorValue> values;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      operands[i] = ctx->input(i);
      values.emplace_back(&operands[i]);
    }
    OpKernelContext::Params params;
    Inherit(ctx, &params);
    const std::vector<tensorflow::AllocatorAttributes> attributes(operands.size() + results.size());
    OP_REQUIRES_OK(ctx, CallInnerKernel(kernel_.get(), values, attributes, params, ctx->num_outputs(), results.data()));
    for (int k = 0; k < ctx->num_outputs(); ++k) ctx->set_output(k, results[k]);
  }

 private:
  std::shared_ptr<OpKernel> kernel_;
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetRandomKernel").Device(tensorflow::DEVICE_CPU), RandomKernelOp);

}  // namespace
}  // namespace stitchfleet
