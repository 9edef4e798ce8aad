// The RowsProduct op: a product that a loop does with one row block of a list at each iteration, done with all of them at once.
//
// In a recurrent network's loop the input's product, x[t] W, does not depend on the iteration before. For a small batch it reads all of
// W for a few rows at each of the T points in time and so runs at the memory's speed; [T * batch, K] times W reads it once. The product
// is TensorFlow's own kernel on the rows of all points in time, with the bias and the activation that TensorFlow has fused onto it.

#include <memory>
#include <string>
#include <vector>

#include "inner_kernels.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace stitchfleet {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorValue;

absl::Status ProductShape(tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 3, &rows));
  c->set_output(0, c->MakeShape({c->Dim(rows, 0), c->Dim(rows, 1), c->UnknownDim()}));
  return absl::OkStatus();
}

REGISTER_OP("StitchfleetRowsProduct")
    .Input("rows: T")
    .Input("others: count * T")
    .Output("products: T")
    .Attr("T: type")
    .Attr("count: int >= 1")
    .Attr("product: string")
    .SetShapeFn(ProductShape)
    .Doc("`product`, a NodeDef of a matrix product, of each of rows [times, batch, width] and `others`: [times, batch, columns].");

class RowsProductOp : public OpKernel {
 public:
  explicit RowsProductOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string text;
    OP_REQUIRES_OK(c, c->GetAttr("product", &text));
    tensorflow::GraphDef graph;
    tensorflow::NodeDef node;
    OP_REQUIRES(c, node.ParseFromString(text), tensorflow::errors::InvalidArgument("stitchfleet: a product that is not readable"));
    node.clear_input();
    for (int i = 0; i < c->num_inputs(); ++i) {
      tensorflow::NodeDef* operand = graph.add_node();
      operand->set_name("stitchfleet_operand_" + std::to_string(i));
      operand->set_op("Placeholder");
      operand->set_device(node.device());
      (*operand->mutable_attr())["dtype"].set_type(c->input_type(i));
      node.add_input(operand->name());
    }
    *graph.add_node() = node;
    OP_REQUIRES_OK(c, tensorflow::AddDefaultAttrsToGraphDef(&graph, *tensorflow::OpRegistry::Global(), 0));
    OP_REQUIRES_OK(c, UseOneDnn(&graph));
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    OP_REQUIRES_OK(c, tensorflow::NodeProperties::CreateFromNodeDef(graph.node(c->num_inputs()), tensorflow::OpRegistry::Global(),
                                                                    &properties));
    OP_REQUIRES_OK(c, MakeInnerKernel(c, properties, &kernel_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& given = ctx->input(0);
    OP_REQUIRES(ctx, given.dims() == 3, tensorflow::errors::InvalidArgument("In[0] is not a matrix at each point in time: ",
                                                                            given.shape().DebugString()));
    const int64_t times = given.dim_size(0), batch = given.dim_size(1);
    std::vector<Tensor> operands(ctx->num_inputs());
    OP_REQUIRES(ctx, operands[0].CopyFrom(given, TensorShape({times * batch, given.dim_size(2)})),
                tensorflow::errors::Internal("stitchfleet: rows cannot be put together"));
    for (int i = 1; i < ctx->num_inputs(); ++i) operands[i] = ctx->input(i);
    std::vector<TensorValue> values;
    for (Tensor& operand : operands) values.emplace_back(&operand);
    const std::vector<tensorflow::AllocatorAttributes> attributes(values.size() + 1);
    OpKernelContext::Params params;
    Inherit(ctx, &params);
    Tensor product, shaped;
    OP_REQUIRES_OK(ctx, CallInnerKernel(kernel_.get(), values, attributes, params, 1, &product));
    OP_REQUIRES(ctx, product.dims() == 2 && shaped.CopyFrom(product, TensorShape({times, batch, product.dim_size(1)})),
                tensorflow::errors::Internal("stitchfleet: a product that is no matrix"));
    ctx->set_output(0, shaped);
  }

 private:
  std::unique_ptr<OpKernel> kernel_;
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetRowsProduct").Device(tensorflow::DEVICE_CPU), RowsProductOp);

}  // namespace
}  // namespace stitchfleet
