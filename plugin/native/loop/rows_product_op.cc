// The RowsProduct op: the matrix product that a loop computes with one element of a list in each iteration, computed for all at once.
//
// In a recurrent network's loop the product of the input, x[t] W, does not depend on the previous iteration. With a small batch it
// reads all of W for a few rows at each of the T time steps, and so runs at the speed of memory; [T * batch, K] times W reads it
// once. The product is TensorFlow's own kernel on the rows of all time steps, with the bias and the activation that TensorFlow has
// fused onto it.
//
// Its sums may be rounded differently from those of a few rows. The first calls compute both and compare them. These calls return the
// products of the single time steps, as in the job's own graph; so do all later ones if the two have differed by more than rounding.

#include <atomic>
#include <cstdio>
#include <cstring>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "guard/compare.h"
#include "loop/inner_kernels.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace stitchfleet {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

Status ProductShape(tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 3, &rows));
  c->set_output(0, c->MakeShape({c->Dim(rows, 0), c->Dim(rows, 1), c->UnknownDim()}));
  return Ok();
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

constexpr int kVerifiedCalls = 2;

class RowsProductOp : public OpKernel {
 public:
  explicit RowsProductOp(OpKernelConstruction* c) : OpKernel(c) {
    std::string text;
    OP_REQUIRES_OK(c, c->GetAttr("product", &text));
    tensorflow::NodeDef node;
    OP_REQUIRES(c, node.ParseFromString(text), tensorflow::errors::InvalidArgument("stitchfleet: a product that is not readable"));
    const auto& types = c->input_types();
    OP_REQUIRES_OK(c, MakeLoneKernel(c, std::move(node), {types.begin(), types.end()}, &kernel_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& given = ctx->input(0);
    OP_REQUIRES(ctx, given.dims() == 3, tensorflow::errors::InvalidArgument("In[0] is not a matrix at each point in time: ",
                                                                            given.shape().DebugString()));
    const int64_t times = given.dim_size(0), batch = given.dim_size(1);
    OpKernelContext::Params params;
    Inherit(ctx, &params);
    Tensor together, apart;
    const bool stay_apart = stay_apart_.load(std::memory_order_relaxed) && given.NumElements() > 0;
    if (!stay_apart) {
      Tensor rows, product;
      OP_REQUIRES(ctx, rows.CopyFrom(given, TensorShape({times * batch, given.dim_size(2)})),
                  tensorflow::errors::Internal("stitchfleet: rows cannot be put together"));
      OP_REQUIRES_OK(ctx, Product(ctx, rows, params, &product));
      OP_REQUIRES(ctx, product.dims() == 2 && together.CopyFrom(product, TensorShape({times, batch, product.dim_size(1)})),
                  tensorflow::errors::Internal("stitchfleet: a product that is no matrix"));
      if (verified_calls_.load(std::memory_order_relaxed) >= kVerifiedCalls || product.NumElements() == 0) {
        ctx->set_output(0, together);
        return;
      }
    }
    OP_REQUIRES_OK(ctx, OneByOne(ctx, params, &apart));
    ctx->set_output(0, apart);
    if (stay_apart) return;
    verified_calls_.fetch_add(1, std::memory_order_relaxed);
    const Comparison comparison = Compare(apart, together, OfReorderedSums(given.dim_size(2), given.dtype()));
    if (comparison.agree || stay_apart_.exchange(true)) return;
    fprintf(stderr, "stitchfleet: %s of all points in time at once is %.9g, one by one %.9g: it stays one by one\n", name().c_str(),
            comparison.actual, comparison.expected);
  }

 private:
  Status Product(OpKernelContext* ctx, const Tensor& rows, OpKernelContext::Params& params, Tensor* product) {
    std::vector<Tensor> operands = {rows};
    for (int i = 1; i < ctx->num_inputs(); ++i) operands.push_back(ctx->input(i));
    return CallLoneKernel(kernel_.get(), std::move(operands), params, product);
  }

  Status OneByOne(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* products) {
    const Tensor& given = ctx->input(0);
    const size_t bytes = given.TotalBytes() / given.dim_size(0);
    size_t written = 0;
    for (int64_t t = 0; t < given.dim_size(0); ++t) {
      Tensor rows, product;
      TF_RETURN_IF_ERROR(ctx->allocate_temp(given.dtype(), TensorShape({given.dim_size(1), given.dim_size(2)}), &rows));
      std::memcpy(rows.data(), static_cast<const char*>(given.data()) + t * bytes, bytes);
      TF_RETURN_IF_ERROR(Product(ctx, rows, params, &product));
      if (t == 0) {
        TF_RETURN_IF_ERROR(ctx->allocate_temp(
            product.dtype(), TensorShape({given.dim_size(0), product.dim_size(0), product.dim_size(1)}), products));
      }
      std::memcpy(static_cast<char*>(products->data()) + written, product.data(), product.TotalBytes());
      written += product.TotalBytes();
    }
    return Ok();
  }

  std::unique_ptr<OpKernel> kernel_;
  std::atomic<int> verified_calls_{0};
  std::atomic<bool> stay_apart_{false};
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetRowsProduct").Device(tensorflow::DEVICE_CPU), RowsProductOp);

}  // namespace
}  // namespace stitchfleet
