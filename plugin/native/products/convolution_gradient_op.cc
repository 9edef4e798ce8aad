// The gradients of a convolution, by the faster one of two of TensorFlow's kernels.
//
// TensorFlow computes the gradient of a convolution with respect to its input as a matrix product into a buffer of all taps, which it
// then adds up; a forward convolution of the gradient with the turned filter needs no such buffer (Dumoulin and Visin 2016, "A guide to
// convolution arithmetic for deep learning", section 4). The gradients of a 1x1 convolution are matrix products alone. Without oneDNN
// the other kernel was seen to take a half to a quarter of the time; with oneDNN it may be slower. So both are timed
// (two_kernels.h).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "op/large_buffers.h"
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

constexpr char kPrefix[] = "Stitchfleet";
constexpr char kInputGradient[] = "Conv2DBackpropInput", kFilterGradient[] = "Conv2DBackpropFilter";

// by: "product", or "convolution" with the paddings of the gradient's height and width, two each.
#define STITCHFLEET_CONVOLUTION_GRADIENT(name, first, second, own)                             \
  REGISTER_OP(name)                                                                            \
      .Input(first)                                                                            \
      .Input(second)                                                                           \
      .Input("out_backprop: T")                                                                \
      .Output("output: T")                                                                     \
      .Attr("T: {float, double}")                                                              \
      .Attr("strides: list(int)")                                                              \
      .Attr("use_cudnn_on_gpu: bool = true")                                                   \
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")                                          \
      .Attr("explicit_paddings: list(int) = []")                                               \
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")                                          \
      .Attr("dilations: list(int) = [1, 1, 1, 1]")                                             \
      .Attr("stitchfleet_by: {'product', 'convolution'}")                                      \
      .Attr("stitchfleet_paddings: list(int) = []")                                            \
      .SetShapeFn(ShapeOfOwn<own>)                                                             \
      .Doc("TensorFlow's op of this name without the prefix, by the faster one of two kernels.")

STITCHFLEET_CONVOLUTION_GRADIENT("StitchfleetConv2DBackpropInput", "input_sizes: int32", "filter: T", kInputGradient);
STITCHFLEET_CONVOLUTION_GRADIENT("StitchfleetConv2DBackpropFilter", "input: T", "filter_sizes: int32", kFilterGradient);

// The shapes that a call depends on.
struct Shapes {
  TensorShape input, filter, gradient;  // NHWC, HWIO, NHWC
  std::vector<int64_t> Key() const {
    std::vector<int64_t> key;
    for (const TensorShape* shape : {&input, &filter, &gradient}) {
      for (int i = 0; i < 4; ++i) key.push_back(shape->dim_size(i));
    }
    return key;
  }
};

// Runs `task(first, last)` on ranges of [0, count) on TensorFlow's pool. cost: bytes read and written per index.
template <typename Task>
void ForAll(OpKernelContext* ctx, int64_t count, int64_t cost, const Task& task) {
  ctx->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, std::max<int64_t>(1, cost), task);
}

// [taps, rows, columns] -> [taps, columns, rows], the taps in reverse order.
template <typename T>
void Turn(OpKernelContext* ctx, const Tensor& filter, Tensor* turned) {
  constexpr int64_t kTile = 16;  // a cache line of floats
  const int64_t taps = filter.dim_size(0) * filter.dim_size(1), rows = filter.dim_size(2), columns = filter.dim_size(3);
  const int64_t tiles = (rows + kTile - 1) / kTile;
  const T* from = filter.flat<T>().data();
  T* to = turned->flat<T>().data();
  ForAll(ctx, taps * tiles, 2 * kTile * columns * sizeof(T), [=](int64_t first, int64_t last) {
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t tap = unit / tiles, row = unit % tiles * kTile, row_end = std::min(rows, row + kTile);
      const T* source = from + tap * rows * columns;
      T* target = to + (taps - 1 - tap) * rows * columns;
      for (int64_t column = 0; column < columns; column += kTile) {
        const int64_t column_end = std::min(columns, column + kTile);
        for (int64_t c = column; c < column_end; ++c) {
          for (int64_t r = row; r < row_end; ++r) target[c * rows + r] = source[r * columns + c];
        }
      }
    }
  });
}

class ConvolutionGradientOp : public TwoKernelsOp {
 public:
  explicit ConvolutionGradientOp(OpKernelConstruction* c) : TwoKernelsOp(c) {
    NodeDef own = def();
    own.set_op(own.op().substr(sizeof(kPrefix) - 1));
    own.mutable_attr()->erase("stitchfleet_by");
    own.mutable_attr()->erase("stitchfleet_paddings");
    of_filter_ = own.op() == kFilterGradient;
    OP_REQUIRES_OK(c, MakeLoneKernel(c, own, {c->input_type(0), c->input_type(1), c->input_type(2)}, &kernels_[0]));
    std::vector<int32_t> strides;
    OP_REQUIRES_OK(c, c->GetAttr("strides", &strides));
    OP_REQUIRES(c, strides.size() == 4, tensorflow::errors::InvalidArgument("strides must be four numbers"));
    strides_[0] = strides[1];
    strides_[1] = strides[2];
    std::string by;
    OP_REQUIRES_OK(c, c->GetAttr("stitchfleet_by", &by));
    OP_REQUIRES_OK(c, c->GetAttr("stitchfleet_paddings", &paddings_));
    by_product_ = by == "product";
    OP_REQUIRES(c, by_product_ || paddings_.size() == 4, tensorflow::errors::InvalidArgument("a convolution without paddings"));
    const tensorflow::DataType dtype = c->output_type(0);
    NodeDef other = NodeLike(c, by_product_ ? "MatMul" : "Conv2D");
    auto& attributes = *other.mutable_attr();
    if (by_product_) {
      attributes[of_filter_ ? "transpose_a" : "transpose_b"].set_b(true);
    } else {
      attributes["padding"].set_s("EXPLICIT");
      for (int i = 0; i < 4; ++i) attributes["strides"].mutable_list()->add_i(1);
      for (int padding : {0, 0, paddings_[0], paddings_[1], paddings_[2], paddings_[3], 0, 0}) {
        attributes["explicit_paddings"].mutable_list()->add_i(padding);
      }
    }
    OP_REQUIRES_OK(c, MakeLoneKernel(c, other, {dtype, dtype}, &kernels_[1]));
  }

 protected:
  bool Fits(OpKernelContext* ctx, CallShapes* call) const override {
    Shapes shapes;
    if (!AreShapes(ctx, &shapes)) return false;
    call->extents = shapes.Key();
    call->terms = of_filter_ ? shapes.gradient.num_elements() / shapes.gradient.dim_size(3)
                                 : shapes.filter.num_elements() / shapes.filter.dim_size(2);
    return true;
  }

  Status Own(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    return CallLoneKernel(kernels_[0].get(), {ctx->input(0), ctx->input(1), ctx->input(2)}, params, result);
  }

  Status Other(OpKernelContext* ctx, OpKernelContext::Params& params, Tensor* result) override {
    Shapes shapes;
    if (!AreShapes(ctx, &shapes)) return tensorflow::errors::Internal("other shapes than a moment ago");
    const bool of_floats = ctx->input(2).dtype() == tensorflow::DT_FLOAT;
    if (by_product_) {
      return of_filter_ ? FilterByProduct(ctx, params, shapes, result) : InputByProduct(ctx, params, shapes, result);
    }
    const TensorShape& filter = shapes.filter;
    const Tensor& gradient = ctx->input(2);
    Tensor turned;
    TF_RETURN_IF_ERROR(AllocateLargeTemporary(
        ctx, gradient.dtype(), TensorShape({filter.dim_size(0), filter.dim_size(1), filter.dim_size(3), filter.dim_size(2)}), &turned));
    if (of_floats) Turn<float>(ctx, ctx->input(1), &turned);
    else Turn<double>(ctx, ctx->input(1), &turned);
    return CallLoneKernel(kernels_[1].get(), {gradient, turned}, params, result);
  }

 private:
  // Fills in the shapes of a call. Returns whether the other kernel can compute it.
  bool AreShapes(OpKernelContext* ctx, Shapes* shapes) const {
    const Tensor& sizes = ctx->input(of_filter_ ? 1 : 0);
    if (sizes.dims() != 1 || sizes.NumElements() != 4) return false;
    const int32_t* extents = sizes.flat<int32_t>().data();
    if (std::any_of(extents, extents + 4, [](int32_t extent) { return extent < 0; })) return false;
    TensorShape sized;
    for (int i = 0; i < 4; ++i) sized.AddDim(extents[i]);
    *shapes = of_filter_ ? Shapes{ctx->input(0).shape(), sized, ctx->input(2).shape()}
                         : Shapes{sized, ctx->input(1).shape(), ctx->input(2).shape()};
    const auto& [input, filter, gradient] = *shapes;
    if (input.dims() != 4 || filter.dims() != 4 || gradient.dims() != 4) return false;
    if (input.num_elements() == 0 || filter.num_elements() == 0 || gradient.num_elements() == 0) return false;
    if (input.dim_size(0) != gradient.dim_size(0) || input.dim_size(3) != filter.dim_size(2) ||
        filter.dim_size(3) != gradient.dim_size(3)) {
      return false;
    }
    for (int i = 0; i < 2; ++i) {
      const int64_t extent = input.dim_size(1 + i), taps = filter.dim_size(i), of_gradient = gradient.dim_size(1 + i);
      if (by_product_ ? taps != 1 || of_gradient != (extent + strides_[i] - 1) / strides_[i]
                      : strides_[i] != 1 || extent != of_gradient + paddings_[2 * i] + paddings_[2 * i + 1] - taps + 1) {
        return false;
      }
    }
    return true;
  }

  // [batch, height, width, F] times the transposed [C, F], and zeros between the strides.
  Status InputByProduct(OpKernelContext* ctx, OpKernelContext::Params& params, const Shapes& shapes, Tensor* result) {
    Tensor gradient, filter, product;
    TF_RETURN_IF_ERROR(AsMatrix(ctx->input(2), &gradient));
    TF_RETURN_IF_ERROR(AsMatrix(ctx->input(1), &filter));
    TF_RETURN_IF_ERROR(CallLoneKernel(kernels_[1].get(), {gradient, filter}, params, &product));
    if (!IsStrided()) return Reshaped(product, shapes.input, result);
    TF_RETURN_IF_ERROR(AllocateLargeTemporary(ctx, product.dtype(), shapes.input, result));
    const Places places = PlacesOf(shapes, product.dtype());
    const char* from = static_cast<const char*>(product.data());
    char* to = static_cast<char*>(result->data());
    ForAll(ctx, shapes.input.dim_size(0) * places.height, 2 * places.width * places.bytes, [=](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        char* target = to + row * places.width * places.bytes;
        std::memset(target, 0, places.width * places.bytes);
        const char* source = places.Source(from, row);
        if (source == nullptr) continue;
        for (int64_t i = 0; i < places.of_gradient[1]; ++i) {
          std::memcpy(target + i * places.strides[1] * places.bytes, source + i * places.bytes, places.bytes);
        }
      }
    });
    return Ok();
  }

  // The transposed [batch, height, width, C], without what the strides pass over, times [batch, height, width, F].
  Status FilterByProduct(OpKernelContext* ctx, OpKernelContext::Params& params, const Shapes& shapes, Tensor* result) {
    Tensor input, gradient, product;
    TF_RETURN_IF_ERROR(AsMatrix(ctx->input(2), &gradient));
    if (IsStrided()) {
      const Places places = PlacesOf(shapes, gradient.dtype());
      TF_RETURN_IF_ERROR(
          AllocateLargeTemporary(ctx, gradient.dtype(), TensorShape({gradient.dim_size(0), shapes.input.dim_size(3)}), &input));
      const char* from = static_cast<const char*>(ctx->input(0).data());
      char* to = static_cast<char*>(input.data());
      ForAll(ctx, shapes.input.dim_size(0) * places.height, 2 * places.of_gradient[1] * places.bytes,
             [=](int64_t first, int64_t last) {
               for (int64_t row = first; row < last; ++row) {
                 char* target = const_cast<char*>(places.Source(to, row));
                 if (target == nullptr) continue;
                 const char* source = from + row * places.width * places.bytes;
                 for (int64_t i = 0; i < places.of_gradient[1]; ++i) {
                   std::memcpy(target + i * places.bytes, source + i * places.strides[1] * places.bytes, places.bytes);
                 }
               }
             });
    } else {
      TF_RETURN_IF_ERROR(AsMatrix(ctx->input(0), &input));
    }
    TF_RETURN_IF_ERROR(CallLoneKernel(kernels_[1].get(), {input, gradient}, params, &product));
    return Reshaped(product, shapes.filter, result);
  }

  // Maps rows of the input to rows of the packed input, which has only the pixels that the strides do not skip.
  struct Places {
    int64_t height, width, bytes;  // of the input; of a pixel of the input
    int64_t strides[2], of_gradient[2];
    // The packed row of row `row` of the input, counted over the batch; null if the strides skip it.
    const char* Source(const char* packed, int64_t row) const {
      const int64_t image = row / height, y = row % height;
      if (y % strides[0] != 0) return nullptr;
      return packed + (image * of_gradient[0] + y / strides[0]) * of_gradient[1] * bytes;
    }
  };

  Places PlacesOf(const Shapes& shapes, tensorflow::DataType dtype) const {
    const int64_t bytes = shapes.input.dim_size(3) * tensorflow::DataTypeSize(dtype);
    return {shapes.input.dim_size(1),       shapes.input.dim_size(2),
            bytes,                          {strides_[0], strides_[1]},
            {shapes.gradient.dim_size(1), shapes.gradient.dim_size(2)}};
  }

  bool IsStrided() const { return strides_[0] != 1 || strides_[1] != 1; }

  std::unique_ptr<OpKernel> kernels_[2];  // the job's own, the other
  bool of_filter_ = false, by_product_ = false;
  int64_t strides_[2] = {1, 1};
  std::vector<int32_t> paddings_;
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetConv2DBackpropInput").Device(tensorflow::DEVICE_CPU), ConvolutionGradientOp);
REGISTER_KERNEL_BUILDER(Name("StitchfleetConv2DBackpropFilter").Device(tensorflow::DEVICE_CPU), ConvolutionGradientOp);

}  // namespace
}  // namespace stitchfleet
