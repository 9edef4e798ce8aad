#include "products/two_kernels.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "guard/compare.h"
#include "op/large_buffers.h"

namespace stitchfleet {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

constexpr int kComparedCalls = 2, kTimedCalls = 8;
constexpr double kClearly = 0.95;  // of the own kernel's time
constexpr size_t kMostShapes = 32;

std::atomic<bool> compete{false};

}  // namespace

// Which of the two kernels computes the products of tensors of the same shapes.
struct TwoKernelsOp::Race {
  std::atomic<int> calls{0};
  std::atomic<int64_t> shortest_ns[2] = {{INT64_MAX}, {INT64_MAX}};
  std::atomic<bool> refused{false};

  bool is_over() const { return calls.load(std::memory_order_relaxed) >= kComparedCalls + kTimedCalls; }
  bool other_is_faster() const {
    return !refused.load(std::memory_order_relaxed) &&
           shortest_ns[1].load(std::memory_order_relaxed) < kClearly * shortest_ns[0].load(std::memory_order_relaxed);
  }
  void Note(int kernel, int64_t ns) {
    int64_t before = shortest_ns[kernel].load(std::memory_order_relaxed);
    while (ns < before && !shortest_ns[kernel].compare_exchange_weak(before, ns)) {
    }
  }
};

void TwoKernelsOp::Compute(OpKernelContext* ctx) {
  OpKernelContext::Params params;
  Inherit(ctx, &params);
  DeviceWithLargeBuffers device(params.device);
  CallShapes shapes;
  Race* race = nullptr;  // null: the own kernel computes this call, which does not count
  if (compete.load(std::memory_order_relaxed)) {
    params.device = &device;
    if (Fits(ctx, &shapes)) race = RaceOf(std::move(shapes.extents));
    if (race != nullptr && race->refused.load(std::memory_order_relaxed)) race = nullptr;
  }
  constexpr int kCalls = kComparedCalls + kTimedCalls;
  const int call = race == nullptr || race->is_over() ? kCalls : race->calls.fetch_add(1, std::memory_order_relaxed);
  const bool compared = call < kComparedCalls, timed = !compared && call < kCalls;
  const bool by_other = timed ? call % 2 == 1 : !compared && race != nullptr && race->other_is_faster();
  const auto began = std::chrono::steady_clock::now();
  Tensor own, other;
  if (by_other && !Refused(race, Other(ctx, params, &other))) {
    ctx->set_output(0, other);
  } else {
    OP_REQUIRES_OK(ctx, Own(ctx, params, &own));
    ctx->set_output(0, own);
    if (by_other) return;
  }
  if (timed) {
    const auto took = std::chrono::steady_clock::now() - began;
    race->Note(by_other, std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  }
  if (!compared || Refused(race, Other(ctx, params, &other))) return;
  const Comparison comparison = Compare(own, other, OfReorderedSums(shapes.terms, own.dtype(), shapes.parts));
  if (comparison.agree || race->refused.exchange(true)) return;
  fprintf(stderr, "stitchfleet: %s is %.9g by another kernel, %.9g by its own: it keeps its own\n", name().c_str(), comparison.actual,
          comparison.expected);
}

// The race for calls of these shapes; null if there are kMostShapes others already.
TwoKernelsOp::Race* TwoKernelsOp::RaceOf(std::vector<int64_t> shapes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = races_.find(shapes);
  if (found != races_.end()) return found->second.get();
  if (races_.size() == kMostShapes) return nullptr;
  return races_.emplace(std::move(shapes), std::make_unique<Race>()).first->second.get();
}

// Whether the other kernel failed; then it is not called again for these shapes.
bool TwoKernelsOp::Refused(Race* race, const Status& status) const {
  if (status.ok()) return false;
  if (!race->refused.exchange(true)) {
    fprintf(stderr, "stitchfleet: %s keeps its own kernel: %s\n", name().c_str(), Message(status).c_str());
  }
  return true;
}

tensorflow::NodeDef NodeLike(tensorflow::OpKernelConstruction* c, const char* op) {
  tensorflow::NodeDef node;
  node.set_name(c->def().name());
  node.set_device(c->def().device());
  node.set_op(op);
  (*node.mutable_attr())["T"].set_type(c->output_type(0));
  return node;
}

Status Reshaped(const Tensor& tensor, const TensorShape& shape, Tensor* result) {
  return result->CopyFrom(tensor, shape) ? Ok() : tensorflow::errors::Internal("a product of another size");
}

Status AsMatrix(const Tensor& tensor, Tensor* matrix) {
  const int64_t columns = tensor.dim_size(tensor.dims() - 1);
  return Reshaped(tensor, TensorShape({tensor.NumElements() / columns, columns}), matrix);
}

}  // namespace stitchfleet

// Whether other kernels than the job's own may compute products.
extern "C" void stitchfleet_let_kernels_compete(int allowed) { stitchfleet::compete.store(allowed != 0); }
