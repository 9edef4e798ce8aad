// One random stream for both arms of a job.
//
// Each executor has its own kernels, so the stream of a *seeded* stateful random op would start again in the other arm. If a job has
// set a seed, both arms get this op instead. It returns TensorFlow's own Philox key and counter from a state that belongs to the
// node, not to the executor, and a stateless op of TensorFlow draws the numbers. The sequence is bit-identical to that of the op that
// it replaces: same key (seed), same counter (seed2 in the upper half), and the same reservation per call
// (GuardedPhiloxRandom::ReserveRandomOutputs: 256 blocks of 128 bits for each element, as in random_op.cc).

#include <memory>
#include <mutex>
#include <string>

#include "graph/shared_by_name.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/random/philox_random.h"
#include "tensorflow/core/lib/random/random.h"
#include "versions/status.h"

namespace stitchfleet {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::random::PhiloxRandom;

REGISTER_OP("StitchfleetRandomStream")
    .Input("shape: S")
    .Output("key: uint64")
    .Output("counter: uint64")
    .Attr("S: {int32, int64}")
    .Attr("seed: int")
    .Attr("seed2: int")
    .Attr("stream: string")
    .Attr("blocks_per_element: int = 256")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(1));
      c->set_output(1, c->Vector(2));
      return Ok();
    });

struct Stream {
  std::mutex mutex;
  PhiloxRandom generator;
};

class RandomStreamOp : public OpKernel {
 public:
  explicit RandomStreamOp(OpKernelConstruction* c) : OpKernel(c) {
    int64_t seed = 0, seed2 = 0;
    std::string stream;
    OP_REQUIRES_OK(c, c->GetAttr("seed", &seed));
    OP_REQUIRES_OK(c, c->GetAttr("seed2", &seed2));
    OP_REQUIRES_OK(c, c->GetAttr("stream", &stream));
    OP_REQUIRES_OK(c, c->GetAttr("blocks_per_element", &blocks_per_element_));
    if (stream.empty()) {  // an op without a seed: a new stream in every kernel, as in TensorFlow
      stream_ = std::make_shared<Stream>();
      stream_->generator = PhiloxRandom(tensorflow::random::New64(), tensorflow::random::New64());
    } else {
      stream_ = SharedByName<Stream>(stream, [seed, seed2] {
        auto made = std::make_shared<Stream>();
        made->generator = PhiloxRandom(seed, seed2);
        return made;
      });
    }
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& shape = ctx->input(0);
    int64_t elements = 1;
    for (int64_t i = 0; i < shape.NumElements(); ++i) {
      elements *= shape.dtype() == tensorflow::DT_INT32 ? static_cast<int64_t>(shape.flat<int32_t>()(i)) : shape.flat<int64_t>()(i);
    }
    Tensor *key = nullptr, *counter = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({1}), &key));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, TensorShape({2}), &counter));
    PhiloxRandom generator;
    {
      std::lock_guard<std::mutex> lock(stream_->mutex);
      generator = stream_->generator;
      stream_->generator.Skip(static_cast<uint64_t>(elements) * blocks_per_element_);
    }
    key->flat<tensorflow::uint64>()(0) = Join(generator.key()[0], generator.key()[1]);
    counter->flat<tensorflow::uint64>()(0) = Join(generator.counter()[0], generator.counter()[1]);
    counter->flat<tensorflow::uint64>()(1) = Join(generator.counter()[2], generator.counter()[3]);
  }

 private:
  static tensorflow::uint64 Join(uint32_t low, uint32_t high) { return static_cast<tensorflow::uint64>(high) << 32 | low; }

  std::shared_ptr<Stream> stream_;
  int64_t blocks_per_element_ = 256;
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetRandomStream").Device(tensorflow::DEVICE_CPU), RandomStreamOp);

}  // namespace
}  // namespace stitchfleet
