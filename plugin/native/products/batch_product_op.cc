// Products of a batch of matrices that are one product of larger matrices, by the faster of both.
//
//     StitchfleetBatchMatMulV2    x[..., M, K] W[K, N]                 is [rows, K] W with the rows of all batches
//     StitchfleetBatchMatMulSum   sum over the batches of x'[K, M] y[M, N]   is [K, rows] [rows, N]
//     StitchfleetEinsum           an einsum, as a batch of products of operands that are transposed before (graph/einsums.py)
//
// The first is a dense layer on sequences, forward and for the gradient of its input; the second the gradient of W. TensorFlow's batch
// kernel rearranges W for each batch, and writes a product for each batch before it adds them up. XLA merges them in the same way (its
// algebraic simplifier).

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "products/two_kernels.h"
#include "tensorflow/core/framework/op.h"

namespace stitchfleet {
namespace {

using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr char kBatchMatMul[] = "BatchMatMulV2";

// product: the NodeDef of the job's own BatchMatMulV2.
REGISTER_OP("StitchfleetBatchMatMulV2")
    .Input("x: T")
    .Input("y: T")
    .Output("output: T")
    .Attr("T: {float, double, bfloat16}")
    .Attr("adj_x: bool = false")
    .Attr("adj_y: bool = false")
    .Attr("product: string")
    .SetShapeFn(ShapeOfOwn<kBatchMatMul>)
    .Doc("TensorFlow's op of this name without the prefix, by the faster one of two kernels.");

Status ShapeOfSum(tensorflow::shape_inference::InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle x, y;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 3, &x));
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(1), 3, &y));
  c->set_output(0, c->Matrix(c->Dim(x, -1), c->Dim(y, -1)));
  return Ok();
}

// product, sum: the NodeDefs of the job's own BatchMatMulV2 with adj_x, and of the Sum over all its batches.
REGISTER_OP("StitchfleetBatchMatMulSum")
    .Input("x: T")
    .Input("y: T")
    .Input("axes: int32")
    .Output("output: T")
    .Attr("T: {float, double, bfloat16}")
    .Attr("product: string")
    .Attr("sum: string")
    .SetShapeFn(ShapeOfSum)
    .Doc("The sum of a BatchMatMulV2 over its batches, by the faster one of two ways.");

Status ShapeOfProduct(tensorflow::shape_inference::InferenceContext* c) {
  const auto first = c->input(2), second = c->input(3);
  if (!c->RankKnown(first) || !c->RankKnown(second) || c->Rank(first) < 3 || c->Rank(second) < 3) {
    c->set_output(0, c->UnknownShape());
    return Ok();
  }
  bool adj_x, adj_y;
  TF_RETURN_IF_ERROR(c->GetAttr("adj_x", &adj_x));
  TF_RETURN_IF_ERROR(c->GetAttr("adj_y", &adj_y));
  std::vector<tensorflow::shape_inference::DimensionHandle> dims;
  for (int i = 0; i < c->Rank(first) - 2; ++i) dims.push_back(c->Dim(first, i));
  dims.push_back(c->Dim(first, adj_x ? -1 : -2));
  dims.push_back(c->Dim(second, adj_y ? -2 : -1));
  c->set_output(0, c->MakeShape(dims));
  return Ok();
}

// einsum: the NodeDef of the job's own Einsum of x and y. first, second: the operands of the BatchMatMulV2 with adj_x and adj_y that
// computes the same. permutation: makes the einsum's result the product.
REGISTER_OP("StitchfleetEinsum")
    .Input("x: T")
    .Input("y: T")
    .Input("first: T")
    .Input("second: T")
    .Output("product: T")
    .Attr("T: {float, double}")
    .Attr("adj_x: bool")
    .Attr("adj_y: bool")
    .Attr("einsum: string")
    .Attr("permutation: list(int)")
    .SetShapeFn(ShapeOfProduct)
    .Doc("An Einsum, its result's dimensions in another order, by the faster one of two kernels.");

Status Parsed(OpKernelConstruction* c, const char* attribute, NodeDef* node) {
  std::string text;
  TF_RETURN_IF_ERROR(c->GetAttr(attribute, &text));
  return node->ParseFromString(text) ? Ok() : tensorflow::errors::InvalidArgument("stitchfleet: a node that is not readable");
}

Status MakeMatMul(OpKernelConstruction* c, const char* transposed, std::unique_ptr<OpKernel>* made) {
  NodeDef node = NodeLike(c, "MatMul");
  if (transposed != nullptr) (*node.mutable_attr())[transposed].set_b(true);
  return MakeLoneKernel(c, node, {c->output_type(0), c->output_type(0)}, made);
}

// Whether a kernel adds up products in float32 or float64: oneDNN's do, but TensorFlow's others add up bf16 in bf16, so that two orders
// differ too much to be compared.
bool AddsUpWide(const OpKernel& kernel) {
  return kernel.output_type(0) != tensorflow::DT_BFLOAT16 || kernel.type_string().rfind("_Mkl", 0) == 0;
}

void AddShape(const Tensor& tensor, std::vector<int64_t>* extents) {
  extents->push_back(tensor.dims());
  for (int i = 0; i < tensor.dims(); ++i) extents->push_back(tensor.dim_size(i));
}

class BatchMatMulOp : public TwoKernelsOp {
 public:
  explicit BatchMatMulOp(OpKernelConstruction* c) : TwoKernelsOp(c) {
    NodeDef product;
    bool is_turned;
    OP_REQUIRES_OK(c, Parsed(c, "product", &product));
    OP_REQUIRES_OK(c, c->GetAttr("adj_x", &is_turned));
    OP_REQUIRES(c, !is_turned, tensorflow::errors::InvalidArgument("stitchfleet: rows that are columns"));
    OP_REQUIRES_OK(c, c->GetAttr("adj_y", &adj_y_));
    OP_REQUIRES_OK(c, MakeLoneKernel(c, product, {c->input_type(0), c->input_type(1)}, &batch_));
    adds_up_wide_ = AddsUpWide(*batch_);
    OP_REQUIRES_OK(c, MakeMatMul(c, adj_y_ ? "transpose_b" : nullptr, &matmul_));
  }

 protected:
  bool Fits(OpKernelContext* ctx, CallShapes* call) const override {
    const Tensor &x = ctx->input(0), &y = ctx->input(1);
    if (!adds_up_wide_ || x.dims() < 3 || y.dims() < 2 || y.dims() > x.dims() || x.NumElements() == 0 || y.NumElements() == 0) return false;
    const int64_t rows = y.dim_size(y.dims() - 2), columns = y.dim_size(y.dims() - 1);
    if (rows * columns != y.NumElements() || x.dim_size(x.dims() - 1) != (adj_y_ ? columns : rows)) return false;
    AddShape(x, &call->extents);
    AddShape(y, &call->extents);
    call->terms = adj_y_ ? columns : rows;
    return true;
  }

  Status Own(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    return CallLoneKernel(batch_.get(), {ctx->input(0), ctx->input(1)}, params, result);
  }

  Status Other(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    const Tensor &x = ctx->input(0), &y = ctx->input(1);
    Tensor rows, matrix, product;
    TF_RETURN_IF_ERROR(AsMatrix(x, &rows));
    TF_RETURN_IF_ERROR(AsMatrix(y, &matrix));
    TF_RETURN_IF_ERROR(CallLoneKernel(matmul_.get(), {rows, matrix}, params, &product));
    TensorShape shape = x.shape();
    shape.set_dim(x.dims() - 1, product.dim_size(1));
    return Reshaped(product, shape, result);
  }

 private:
  std::unique_ptr<OpKernel> batch_, matmul_;
  bool adj_y_ = false, adds_up_wide_ = false;
};

class BatchMatMulSumOp : public TwoKernelsOp {
 public:
  explicit BatchMatMulSumOp(OpKernelConstruction* c) : TwoKernelsOp(c) {
    NodeDef product, sum;
    OP_REQUIRES_OK(c, Parsed(c, "product", &product));
    OP_REQUIRES_OK(c, Parsed(c, "sum", &sum));
    OP_REQUIRES_OK(c, MakeLoneKernel(c, product, {c->input_type(0), c->input_type(1)}, &batch_));
    adds_up_wide_ = AddsUpWide(*batch_);
    OP_REQUIRES_OK(c, MakeLoneKernel(c, sum, {c->input_type(0), c->input_type(2)}, &sum_));
    OP_REQUIRES_OK(c, MakeMatMul(c, "transpose_a", &matmul_));
  }

 protected:
  bool Fits(OpKernelContext* ctx, CallShapes* call) const override {
    const Tensor &x = ctx->input(0), &y = ctx->input(1), &axes = ctx->input(2);
    const int batches = x.dims() - 2;
    if (!adds_up_wide_ || batches < 1 || y.dims() != x.dims() || x.NumElements() == 0 || y.NumElements() == 0) return false;
    for (int i = 0; i <= batches; ++i) {
      if (x.dim_size(i) != y.dim_size(i)) return false;
    }
    if (axes.NumElements() != batches) return false;
    for (int i = 0; i < batches; ++i) {
      const int32_t axis = axes.flat<int32_t>()(i);
      if (axis != i && axis != i - x.dims()) return false;
    }
    AddShape(x, &call->extents);
    AddShape(y, &call->extents);
    call->terms = x.NumElements() / x.dim_size(x.dims() - 1);
    call->parts = call->terms / x.dim_size(x.dims() - 2);
    return true;
  }

  Status Own(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    Tensor products;
    TF_RETURN_IF_ERROR(CallLoneKernel(batch_.get(), {ctx->input(0), ctx->input(1)}, params, &products));
    return CallLoneKernel(sum_.get(), {products, ctx->input(2)}, params, result);
  }

  Status Other(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    Tensor x, y;
    TF_RETURN_IF_ERROR(AsMatrix(ctx->input(0), &x));
    TF_RETURN_IF_ERROR(AsMatrix(ctx->input(1), &y));
    return CallLoneKernel(matmul_.get(), {x, y}, params, result);
  }

 private:
  std::unique_ptr<OpKernel> batch_, sum_, matmul_;
  bool adds_up_wide_ = false;
};

class EinsumOp : public TwoKernelsOp {
 public:
  explicit EinsumOp(OpKernelConstruction* c) : TwoKernelsOp(c) {
    NodeDef einsum, product = NodeLike(c, kBatchMatMul), transpose = NodeLike(c, "Transpose");
    std::vector<int32_t> permutation;
    const tensorflow::DataType dtype = c->output_type(0);
    OP_REQUIRES_OK(c, Parsed(c, "einsum", &einsum));
    OP_REQUIRES_OK(c, c->GetAttr("adj_x", &adj_x_));
    OP_REQUIRES_OK(c, c->GetAttr("adj_y", &adj_y_));
    OP_REQUIRES_OK(c, c->GetAttr("permutation", &permutation));
    OP_REQUIRES_OK(c, MakeLoneKernel(c, einsum, {dtype, dtype}, &einsum_));
    (*product.mutable_attr())["adj_x"].set_b(adj_x_);
    (*product.mutable_attr())["adj_y"].set_b(adj_y_);
    OP_REQUIRES_OK(c, MakeLoneKernel(c, product, {dtype, dtype}, &batch_));
    (*transpose.mutable_attr())["Tperm"].set_type(tensorflow::DT_INT32);
    OP_REQUIRES_OK(c, MakeLoneKernel(c, transpose, {dtype, tensorflow::DT_INT32}, &transpose_));
    permutation_ = Tensor(tensorflow::DT_INT32, TensorShape({static_cast<int64_t>(permutation.size())}));
    std::copy(permutation.begin(), permutation.end(), permutation_.flat<int32_t>().data());
  }

 protected:
  bool Fits(OpKernelContext* ctx, CallShapes* call) const override {
    const Tensor &first = ctx->input(2), &second = ctx->input(3);
    const int rank = first.dims();
    if (rank < 3 || second.dims() != rank || first.NumElements() == 0 || second.NumElements() == 0) return false;
    for (int i = 0; i < rank - 2; ++i) {
      if (first.dim_size(i) != second.dim_size(i)) return false;
    }
    call->terms = first.dim_size(adj_x_ ? rank - 2 : rank - 1);
    AddShape(first, &call->extents);
    AddShape(second, &call->extents);
    return second.dim_size(adj_y_ ? rank - 1 : rank - 2) == call->terms;
  }

  Status Own(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    Tensor own;
    TF_RETURN_IF_ERROR(CallLoneKernel(einsum_.get(), {ctx->input(0), ctx->input(1)}, params, &own));
    return CallLoneKernel(transpose_.get(), {own, permutation_}, params, result);
  }

  Status Other(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    return CallLoneKernel(batch_.get(), {ctx->input(2), ctx->input(3)}, params, result);
  }

 private:
  std::unique_ptr<OpKernel> einsum_, transpose_, batch_;
  bool adj_x_ = false, adj_y_ = false;
  Tensor permutation_;
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetEinsum").Device(tensorflow::DEVICE_CPU), EinsumOp);
REGISTER_KERNEL_BUILDER(Name("StitchfleetBatchMatMulV2").Device(tensorflow::DEVICE_CPU), BatchMatMulOp);
REGISTER_KERNEL_BUILDER(Name("StitchfleetBatchMatMulSum").Device(tensorflow::DEVICE_CPU), BatchMatMulSumOp);

}  // namespace
}  // namespace stitchfleet
