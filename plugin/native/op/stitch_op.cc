// The Stitch op: runs one cluster of TensorFlow's operators as one generated kernel, with TensorFlow's own operators as fallback.
//
// What a call does depends on the state of the executable for its inputs' shapes (the "signature"):
//   FALLBACK  there is no kernel yet: the original operators run, from the serialized function in the attribute `fallback`
//   READY     a kernel is installed, but not switched on: as FALLBACK
//   VERIFY    both run on the same tensors; the op returns the fallback's results, and the kernel's are compared with them
//   STITCHED  the kernel runs alone, except in steps that the guard samples: as VERIFY
//   SUSPECT   a comparison failed: as FALLBACK, until the guard has judged it
//   REVERTED  as FALLBACK, for good
// States are changed from outside (registry.h, through ctypes). The op itself changes only VERIFY or STITCHED -> SUSPECT (or STITCHED
// -> VERIFY, if the tensors of a failed comparison cannot be kept: Registry::ReportMismatch), and any state -> REVERTED if a device
// refuses the kernel.
//
// StitchfleetUpdate is the same op for a cluster that reads and writes variables (variables.h). In VERIFY the original operators do
// the update, and the kernel computes it from the old values into its own buffers. In STITCHED it writes in place under the
// variables' locks.
//
// No thread of TensorFlow waits for a compiler here: a new signature is put in a queue and the fallback runs.
//
// The op is synchronous. The successors of an asynchronous op go through the thread pool's queue, and each wakes a thread, while the
// successor of a synchronous op is run next by the same thread (NodeDone in TensorFlow's core/common_runtime/executor.cc). In a
// recurrent network's loop that would cost more than stitching saves. So the fallback runs on the calling thread too.

#include "op/stitch_op.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/synchronization/notification.h"
#include "op/large_buffers.h"
#include "op/parallel_for.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_util.h"
#include "tensorflow/core/platform/env_time.h"

namespace stitchfleet {
namespace {

using tensorflow::FunctionLibraryRuntime;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;

Status OutputShapes(tensorflow::shape_inference::InferenceContext* c) {
  std::vector<PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("output_shapes", &shapes));
  for (int i = 0; i < c->num_outputs(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape = c->UnknownShape();
    if (i < static_cast<int>(shapes.size())) TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    c->set_output(i, shape);
  }
  return Ok();
}

REGISTER_OP("StitchfleetStitch")
    .Input("host_args: Thost")
    .Input("args: Tin")
    .Output("results: Tout")
    .Attr("Thost: list(type) >= 0")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 1")
    .Attr("fallback: string")
    .Attr("cluster: string")
    .Attr("value_args: list(int) = []")
    .Attr("demands: bool = false")
    .Attr("member_names: list(string) = []")
    .Attr("output_shapes: list(shape) = []")
    .SetShapeFn(OutputShapes)
    .Doc("Operators that stitchfleet runs as one kernel. `fallback` is a FunctionDefLibrary whose first function is the original subgraph; "
         "`value_args` are the arguments whose values (not only shapes) the kernel depends on: they, and handles of variables, are the "
         "`host_args`, in the processor's memory whatever the device, and count as the first arguments. With `demands` the kernel's last output is "
         "a bool: false where the operators would raise an error; `member_names` are the original operators' names, to raise it under.");

REGISTER_OP("StitchfleetUpdate")
    .Input("host_args: Thost")
    .Input("args: Tin")
    .Output("results: Tout")
    .Attr("Thost: list(type) >= 0")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("fallback: string")
    .Attr("cluster: string")
    .Attr("value_args: list(int) = []")
    .Attr("variable_args: list(int)")
    .Attr("written_args: list(int)")
    .Attr("demands: bool = false")
    .Attr("member_names: list(string) = []")
    .Attr("output_shapes: list(shape) = []")
    .SetIsStateful()
    .SetShapeFn(OutputShapes)
    .Doc("As StitchfleetStitch, with variables: `variable_args` are handles of variables, of which it writes `written_args`. The kernel takes "
         "the variables' values and has the new ones as outputs after the results, written in place where nobody else holds the buffer.");

constexpr size_t kMaxValueArgumentBytes = 512;  // shapes, axes and permutations take some tens of bytes
constexpr int64_t kSampleElements = 1024;        // per input
constexpr int64_t kSampleBytes = 64 << 10;       // per call

}  // namespace

StitchOp::StitchOp(OpKernelConstruction* c) : OpKernel(c) {
  std::string fallback, cluster;
  std::vector<tensorflow::DataType> host_types;
  OP_REQUIRES_OK(c, c->GetAttr("fallback", &fallback));
  OP_REQUIRES_OK(c, c->GetAttr("cluster", &cluster));
  OP_REQUIRES_OK(c, c->GetAttr("Thost", &host_types));
  OP_REQUIRES_OK(c, c->GetAttr("value_args", &value_args_));
  OP_REQUIRES_OK(c, c->GetAttr("demands", &demands_));
  OP_REQUIRES_OK(c, c->GetAttr("member_names", &member_names_));
  OP_REQUIRES_OK(c, FallbackFunction::Of(fallback, &fallback_));
  number_ = fallback_->TakeNumber();
  if (type_string() == "StitchfleetUpdate") {
    OP_REQUIRES_OK(c, c->GetAttr("variable_args", &variable_args_));
    OP_REQUIRES_OK(c, c->GetAttr("written_args", &written_args_));
  }
  host_arguments_ = static_cast<int>(host_types.size());
  cluster_ = Registry::Get().FindOrCreateCluster(cluster);
}

void StitchOp::Compute(OpKernelContext* ctx) {
  Variables variables;
  if (!variables.Find(ctx, variable_args_, written_args_)) {
    // a variable is not initialized, or has two handles: TensorFlow's own operators handle that
    cluster_->unsigned_calls.fetch_add(1, std::memory_order_relaxed);
    RunFallback(ctx, nullptr, variables);
    return;
  }
  Signature* signature = FindSignature(ctx, variables);
  const State state = signature == nullptr || !cluster_->enabled.load(std::memory_order_relaxed)
                          ? State::kFallback
                          : Registry::Get().EffectiveState(*signature);
  if (state == State::kStitched && RunStitched(ctx, *signature, variables)) return;
  if (state == State::kSuspect || (state == State::kVerify && signature->state.load(std::memory_order_relaxed) == State::kVerify)) {
    Registry::Get().unverified_calls.fetch_add(1, std::memory_order_relaxed);
  }
  if (state == State::kVerify) {
    RunFallback(ctx, signature, variables);
    return;
  }
  if (signature != nullptr) signature->fallback_calls.fetch_add(1, std::memory_order_relaxed);
  else cluster_->unsigned_calls.fetch_add(1, std::memory_order_relaxed);
  RunFallback(ctx, nullptr, variables);
}

// Whether a status says that the device refuses the kernel, or that it cannot be trusted. If so, the signature is REVERTED:
// TensorFlow's operators compute it from now on.
bool StitchOp::IsRefused(Signature& signature, const Status& status) {
  if (!tensorflow::errors::IsUnavailable(status)) return false;
  Registry::Get().ReportFailure(signature, status);
  return true;
}

// Finds or adds the signature of a call. Its key is a vector of integers: the inputs' shapes (of a variable's value, not of its
// handle) and the bytes of the value arguments. Returns nullptr if the cluster has given up on new signatures (shapes that never
// settle), or if a value argument is too large for a key.
Signature* StitchOp::FindSignature(OpKernelContext* ctx, const Variables& variables) {
  thread_local std::vector<int64_t> key;
  key.clear();
  const std::string& device = Device(ctx);
  if (!device.empty()) key.push_back(static_cast<int64_t>(tensorflow::Hash64(device)));
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    const TensorShape& shape = variables.Shape(ctx, i);
    key.push_back(shape.dims());
    for (int d = 0; d < shape.dims(); ++d) key.push_back(shape.dim_size(d));
  }
  for (int i : value_args_) {
    const Tensor& value = ctx->input(i);
    const size_t bytes = value.TotalBytes();
    if (bytes > kMaxValueArgumentBytes) return nullptr;
    const size_t start = key.size();
    key.resize(start + (bytes + 7) / 8, 0);
    if (bytes != 0) std::memcpy(&key[start], value.tensor_data().data(), bytes);
  }
  Signature* found = cluster_->Find(key, Cluster::Hash(key));
  if (found != nullptr) {
    if (!has_signature_.load(std::memory_order_relaxed)) has_signature_.store(true, std::memory_order_relaxed);
    return found;
  }
  if (cluster_->gave_up.load(std::memory_order_relaxed)) return nullptr;
  std::vector<InputDescription> inputs;
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    const TensorShape& shape = variables.Shape(ctx, i);
    InputDescription input;
    input.dtype = static_cast<int>(variables.Type(ctx, i));
    for (int d = 0; d < shape.dims(); ++d) input.shape.push_back(shape.dim_size(d));
    if (std::find(value_args_.begin(), value_args_.end(), i) != value_args_.end()) {
      input.is_value = true;
      input.value = std::string(ctx->input(i).tensor_data());
    }
    inputs.push_back(std::move(input));
  }
  std::vector<InputSample> samples;
  if (demands_ || !device.empty()) samples = Samples(ctx, variables);
  return Registry::Get().AddSignature(cluster_, key, std::move(inputs), has_signature_.exchange(true), device, std::move(samples));
}

// Some elements of the call's inputs, integers first. The kernel is checked on them, since operators may refuse random inputs
// (indices out of range).
std::vector<InputSample> StitchOp::Samples(OpKernelContext* ctx, const Variables& variables) {
  std::vector<InputSample> samples;
  int64_t left = kSampleBytes;
  for (const bool integers : {true, false}) {
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      if (std::find(value_args_.begin(), value_args_.end(), i) != value_args_.end()) continue;
      if (std::find(variable_args_.begin(), variable_args_.end(), i) != variable_args_.end()) continue;  // may be being written
      const Tensor& given = ctx->input(i);
      const int64_t count = std::min(given.NumElements(), kSampleElements);
      const int64_t bytes = count * tensorflow::DataTypeSize(given.dtype());
      if (tensorflow::DataTypeIsInteger(given.dtype()) != integers || bytes == 0 || bytes > left) continue;
      Tensor flat, host;
      if (!flat.CopyFrom(given, TensorShape({given.NumElements()})) || !ToHost(ctx, flat.Slice(0, count), &host).ok()) continue;
      samples.push_back({i, std::string(host.tensor_data())});
      left -= bytes;
    }
  }
  return samples;
}

// Whether an executable has one output for each result and each written variable of this op, and one for its demands if it has any.
bool StitchOp::Fits(OpKernelContext* ctx, const Executable* executable) const {
  return executable != nullptr &&
         executable->outputs.size() == static_cast<size_t>(ctx->num_outputs()) + written_args_.size() + (demands_ ? 1 : 0);
}

// Runs the kernel into the op's outputs and variables. Returns false, with nothing changed, if the executable does not fit the call,
// if the device refuses it, or if its demands are not met (TensorFlow's operators will raise an error).
bool StitchOp::RunStitched(OpKernelContext* ctx, Signature& signature, Variables& variables) {
  const Executable* executable = signature.executable.load(std::memory_order_acquire);
  if (!Fits(ctx, executable) || !variables.Lock()) return false;
  bool are_met = true;
  const Status status = RunLocked(ctx, *executable, variables, &are_met);
  variables.Unlock();
  const bool is_refused = IsRefused(signature, status);
  if (is_refused || (status.ok() && !are_met)) {
    for (int i = 0; i < ctx->num_outputs(); ++i) delete ctx->release_output(i).tensor;
    return false;
  }
  if (!status.ok()) ctx->SetStatus(status);  // out of memory, which the fallback would be too
  signature.stitched_calls.fetch_add(1, std::memory_order_relaxed);
  return true;
}

Status StitchOp::RunLocked(OpKernelContext* ctx, const Executable& executable, Variables& variables, bool* are_met) {
  Addresses outputs;
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    const OutputSpec& spec = executable.outputs[i];
    Tensor* output = nullptr;
    if (variable_args_.empty() && !demands_) {
      std::any_of(spec.aliases.begin(), spec.aliases.end(),
                  [&](int input) { return ctx->forward_input_to_output_with_shape(input, i, spec.shape, &output); });
    }
    if (output == nullptr) TF_RETURN_IF_ERROR(AllocateOutput(ctx, i, spec.shape, &output));
    outputs.push_back(const_cast<char*>(output->tensor_data().data()));
  }
  // A variable's buffer is written in place if the kernel can do that and there is no other reference to it; else a new buffer
  // replaces it.
  std::vector<std::pair<int, Tensor>> fresh;  // (op input, its new value)
  fresh.reserve(written_args_.size());
  for (size_t w = 0; w < written_args_.size(); ++w) {
    const int input = written_args_[w];
    const OutputSpec& spec = executable.outputs[ctx->num_outputs() + w];
    const bool may_alias = std::find(spec.aliases.begin(), spec.aliases.end(), input) != spec.aliases.end();
    Tensor* target = variables.Target(input);
    if (!may_alias || !target->RefCountIsOne() || target->shape() != spec.shape) {
      fresh.emplace_back(input, Tensor());
      target = &fresh.back().second;
      TF_RETURN_IF_ERROR(ctx->allocate_temp(spec.dtype, spec.shape, target));
    }
    outputs.push_back(const_cast<char*>(target->tensor_data().data()));
  }
  alignas(64) bool answer[64];  // kernels may assume that each output begins on a cache line
  if (demands_) outputs.push_back(answer);
  TF_RETURN_IF_ERROR(Launch(ctx, executable, outputs, variables));
  if (demands_) *are_met = answer[0];
  for (auto& [input, value] : fresh) *variables.Target(input) = std::move(value);
  return Ok();
}

Status StitchOp::Launch(OpKernelContext* ctx, const Executable& executable, const Addresses& outputs, const Variables& variables) {
  absl::InlinedVector<const void*, 16> inputs;
  for (int i : executable.kernel_inputs) inputs.push_back(variables.Value(ctx, i).tensor_data().data());
  inputs.push_back(executable.parameters.data());
  Tensor scratch;
  void* scratch_data = nullptr;
  if (executable.scratch_bytes > 0) {
    TF_RETURN_IF_ERROR(AllocateLargeTemporary(ctx, tensorflow::DT_INT8, TensorShape({executable.scratch_bytes}), &scratch));
    scratch_data = const_cast<char*>(scratch.tensor_data().data());
  }
  tensorflow::thread::ThreadPool* pool = ctx->device()->tensorflow_cpu_worker_threads()->workers;
  const bool has_help = pool != nullptr && pool->NumThreads() > 1 && RunningLoop::LeaveThreads(pool->NumThreads());
  const bool is_choice = executable.has_parallel_phases && has_help;
  const Parallelism::Choice choice = is_choice ? parallelism_.Choose() : Parallelism::Choice{Parallelism::kAlone, false};
  PoolRuntime runtime(pool, choice.way == Parallelism::kShared);
  const uint64_t start = choice.is_timed ? tensorflow::EnvTime::NowNanos() : 0;
  executable.kernel(inputs.data(), outputs.data(), scratch_data, runtime.abi());
  if (choice.is_timed) parallelism_.Observe(choice.way, static_cast<int64_t>(tensorflow::EnvTime::NowNanos() - start));
  return Ok();
}

const std::string& StitchOp::Device(OpKernelContext*) const {
  static const auto* processor = new std::string;
  return *processor;
}

Status StitchOp::FallbackArguments(OpKernelContext* ctx, std::vector<Tensor>* arguments) {
  for (int i = 0; i < ctx->num_inputs(); ++i) arguments->push_back(ctx->input(i));
  return Ok();
}

Status StitchOp::CompareOutput(OpKernelContext*, const Executable& executable, int output, const Tensor& expected,
                                     const Tensor& actual, Comparison* comparison) {
  *comparison = Compare(expected, actual, executable.outputs[output].tolerance);
  return Ok();
}

Status StitchOp::Copy(OpKernelContext*, const Tensor& given, Tensor* copy) const {
  *copy = tensorflow::tensor::DeepCopy(given);
  return Ok();
}

Status StitchOp::AllocateOutput(OpKernelContext* ctx, int output, const TensorShape& shape, Tensor** made) const {
  return AllocateLargeOutput(ctx, output, shape, made);
}

Status StitchOp::AllocateVerified(OpKernelContext* ctx, const OutputSpec& spec, Tensor* output) const {
  TF_RETURN_IF_ERROR(AllocateLargeTemporary(ctx, spec.dtype, spec.shape, output));
  // A stitched call writes variables in place, and results to memory that was used before. So the pages exist before the kernel is timed.
  constexpr size_t kPage = 4096;
  const absl::string_view memory = output->tensor_data();
  volatile char* const bytes = const_cast<char*>(memory.data());
  for (size_t i = 0; i < memory.size(); i += kPage) bytes[i] = 0;
  return Ok();
}

Status StitchOp::ToHost(OpKernelContext*, const Tensor& given, Tensor* copy) const {
  if (&given != copy) *copy = given;
  return Ok();
}

// Runs the original operators. If `verify` is given, runs the kernel on the same tensors (the variables' old values) and compares the
// results.
void StitchOp::RunFallback(OpKernelContext* ctx, Signature* verify, Variables& variables) {
  FunctionLibraryRuntime* runtime = ctx->function_library();
  OP_REQUIRES(ctx, runtime != nullptr, tensorflow::errors::FailedPrecondition("stitchfleet: no function runtime here"));
  FunctionLibraryRuntime::Handle handle;
  OP_REQUIRES_OK(ctx, fallback_->Instantiate(runtime, ctx->device()->name(), number_, &handle));
  // All operators run on this thread. If they were given to the pool while this thread waits, as many Stitch ops as the pool has
  // threads could wait for each other.
  std::function<void(std::function<void()>)> on_this_thread = [](const std::function<void()>& work) { work(); };
  FunctionLibraryRuntime::Options options(ctx->step_id());
  options.step_container = ctx->step_container();
  options.cancellation_manager = ctx->cancellation_manager();
  options.rendezvous = ctx->rendezvous();
  options.runner = &on_this_thread;
  options.run_all_kernels_inline = true;
  options.stats_collector = ctx->stats_collector();
  options.collective_executor = ctx->collective_executor();
  std::vector<Tensor> arguments, results;
  OP_REQUIRES_OK(ctx, FallbackArguments(ctx, &arguments));
  // While the old values are held, TensorFlow's operators write the new ones elsewhere.
  if (verify != nullptr) {
    Status ready = variables.Hold([this, ctx](const Tensor& given, Tensor* copy) { return Copy(ctx, given, copy); });
    ready.Update(Finish(ctx));
    if (IsRefused(*verify, ready) || !ready.ok()) verify = nullptr;  // then only the operators run
  }
  const uint64_t start = verify == nullptr ? 0 : tensorflow::EnvTime::NowNanos();
  Status status;
  absl::Notification finished;
  runtime->Run(options, handle, arguments, &results, [&status, &finished](const Status& outcome) {
    status = outcome;
    finished.Notify();
  });
  finished.WaitForNotification();
  if (!status.ok()) {
    ctx->SetStatus(UnderOwnName(status));
    return;
  }
  if (verify != nullptr && !IsRefused(*verify, Finish(ctx))) Verify(ctx, *verify, variables, results, tensorflow::EnvTime::NowNanos() - start);
  for (size_t i = 0; i < results.size(); ++i) ctx->set_output(i, results[i]);
}

// Replaces the name of the fallback's operator "nk" in an error by the operator's name in the job's graph, by which TensorFlow's Python
// code finds the line of the job's code.
Status StitchOp::UnderOwnName(const Status& status) const {
  constexpr absl::string_view kTag = "{{node n";
  const std::string message = Message(status);
  const size_t start = message.find(kTag);
  if (start == std::string::npos) return status;
  const size_t number = start + kTag.size(), end = message.find("}}", number);
  size_t member = 0;
  if (end == std::string::npos || !absl::SimpleAtoi(message.substr(number, end - number), &member)) return status;
  if (member >= member_names_.size()) return status;
  return WithText(status, message.substr(0, number - 1) + member_names_[member] + message.substr(end));
}

void StitchOp::Verify(OpKernelContext* ctx, Signature& signature, Variables& variables, const std::vector<Tensor>& results,
            uint64_t fallback_ns) {
  const Executable* executable = signature.executable.load(std::memory_order_acquire);
  if (!Fits(ctx, executable) || static_cast<int>(results.size()) != ctx->num_outputs()) return;
  std::vector<Tensor> expected = results;
  variables.AppendPresent(written_args_, &expected);
  auto mismatch = std::make_unique<Mismatch>();
  Addresses outputs;
  for (const OutputSpec& spec : executable->outputs) {
    Tensor output;
    if (!AllocateVerified(ctx, spec, &output).ok()) return;  // not verified, for lack of memory
    outputs.push_back(const_cast<char*>(output.tensor_data().data()));
    mismatch->actual.push_back(std::move(output));
  }
  const uint64_t start = tensorflow::EnvTime::NowNanos();
  Status status = Launch(ctx, *executable, outputs, variables);
  status.Update(Finish(ctx));
  const uint64_t kernel_ns = tensorflow::EnvTime::NowNanos() - start;
  if (status.ok()) status = CheckBorders(ctx, mismatch->actual);
  if (IsRefused(signature, status) || !status.ok()) return;
  if (demands_) {
    if (!mismatch->actual.back().scalar<bool>()()) return;  // then the kernel's results are unspecified
    expected.push_back(mismatch->actual.back());
  }
  if (signature.verify_calls.load(std::memory_order_relaxed) > 0) {  // the first call instantiates the fallback
    signature.slower_calls.fetch_add(kernel_ns > fallback_ns * 5 / 4 ? 1 : 0, std::memory_order_relaxed);
    signature.kernel_ns.fetch_add(kernel_ns, std::memory_order_relaxed);
    signature.fallback_ns.fetch_add(fallback_ns, std::memory_order_relaxed);
    signature.timed_calls.fetch_add(1, std::memory_order_relaxed);
  }
  bool agree = true;
  for (size_t i = 0; i < expected.size(); ++i) {
    Comparison comparison;
    status = CompareOutput(ctx, *executable, static_cast<int>(i), expected[i], mismatch->actual[i], &comparison);
    if (IsRefused(signature, status) || !status.ok()) return;
    signature.ObserveError(comparison.worst_ratio, comparison.largest_error);
    if (!comparison.agree && agree) {
      agree = false;
      mismatch->output = static_cast<int>(i);
      mismatch->comparison = comparison;
    }
  }
  signature.verify_calls.fetch_add(1, std::memory_order_relaxed);
  if (agree) {
    signature.last_good_step.store(Registry::Get().current_step.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return;
  }
  signature.mismatches.fetch_add(1, std::memory_order_relaxed);
  for (int i = 0; i < ctx->num_inputs(); ++i) mismatch->inputs.push_back(variables.Value(ctx, i));
  mismatch->expected = expected;
  for (auto* tensors : {&mismatch->inputs, &mismatch->expected, &mismatch->actual}) {
    for (Tensor& tensor : *tensors) status.Update(ToHost(ctx, tensor, &tensor));
  }
  if (!status.ok()) {  // the guard could not read the tensors
    Registry::Get().ReportFailure(signature, status);
    return;
  }
  Registry::Get().ReportMismatch(signature, std::move(mismatch));
}

REGISTER_KERNEL_BUILDER(Name("StitchfleetStitch").Device(tensorflow::DEVICE_CPU), StitchOp);
REGISTER_KERNEL_BUILDER(Name("StitchfleetUpdate").Device(tensorflow::DEVICE_CPU), StitchOp);

}  // namespace stitchfleet
