#include "op/registry.h"

#include "gpu/cuda_driver.h"
#include "gpu/device_kernel.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace stitchfleet {
namespace {

// Most bytes of tensors in the mismatches that wait for the guard. The first one is kept in any case.
constexpr int64_t kMaxHeldBytes = int64_t{256} << 20;

int64_t BytesOf(const Mismatch& mismatch) {
  int64_t bytes = 0;
  for (const auto* tensors : {&mismatch.inputs, &mismatch.expected, &mismatch.actual}) {
    for (const tensorflow::Tensor& tensor : *tensors) bytes += static_cast<int64_t>(tensor.TotalBytes());
  }
  return bytes;
}

std::string Hex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string RequestJson(const Signature& signature) {
  std::string text = "{\"signature\":" + std::to_string(signature.id) + ",\"cluster\":\"" + signature.cluster->name + "\",\"inputs\":[";
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const InputDescription& input = signature.inputs[i];
    text += (i ? ",{\"dtype\":" : "{\"dtype\":") + std::to_string(input.dtype) + ",\"shape\":[";
    for (size_t d = 0; d < input.shape.size(); ++d) text += (d ? "," : "") + std::to_string(input.shape[d]);
    text += "]";
    if (input.is_value) text += ",\"value\":\"" + Hex(input.value) + "\"";
    text += "}";
  }
  text += "],\"samples\":[";
  for (size_t i = 0; i < signature.samples.size(); ++i) {
    text += (i ? ",{\"input\":" : "{\"input\":") + std::to_string(signature.samples[i].input);
    text += ",\"value\":\"" + Hex(signature.samples[i].bytes) + "\"}";
  }
  if (!signature.device.empty()) text += "],\"device\":" + signature.device + ",\"changing\":";
  else text += "],\"changing\":";
  return text + (signature.changing ? "true" : "false") + "}";
}

}  // namespace

Registry& Registry::Get() {
  static Registry* registry = new Registry;  // never destroyed: op kernels may outlive static destruction
  return *registry;
}

Cluster* Registry::FindOrCreateCluster(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& cluster = clusters_[name];
  if (!cluster) {
    cluster = std::make_unique<Cluster>();
    cluster->name = name;
  }
  return cluster.get();
}

Cluster* Registry::FindCluster(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = clusters_.find(name);
  return found == clusters_.end() ? nullptr : found->second.get();
}

Signature* Registry::AddSignature(Cluster* cluster, const std::vector<int64_t>& key, std::vector<InputDescription> inputs,
                                  bool changing, const std::string& device, std::vector<InputSample> samples) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t hash = Cluster::Hash(key);
  if (Signature* known = cluster->Find(key, hash)) return known;
  if (cluster->gave_up.load()) return nullptr;
  const int count = cluster->signature_count.load();
  if (count == kMaxSignatures || (count >= kFewSignatures && static_cast<double>(cluster->Calls()) < kCallsPerSignature * count)) {
    cluster->gave_up.store(true);
    return nullptr;
  }
  auto signature = std::make_unique<Signature>();
  signature->id = static_cast<int>(signatures_.size());
  signature->turn = static_cast<int>((tensorflow::Hash64(cluster->name) ^ hash) & 0x7fffffff);
  signature->cluster = cluster;
  signature->key = key;
  signature->inputs = std::move(inputs);
  signature->samples = std::move(samples);
  signature->changing = changing;
  signature->device = device;
  Signature* added = signature.get();
  signatures_.push_back(std::move(signature));
  cluster->signatures[count] = added;
  cluster->hashes[count] = hash;
  cluster->signature_count.store(count + 1, std::memory_order_release);
  requests_.push_back(added->id);
  requested_.notify_one();
  return added;
}

void Registry::ReportMismatch(Signature& signature, std::unique_ptr<Mismatch> mismatch) {
  mismatch->signature = signature.id;
  mismatch->step = current_step.load();
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t bytes = BytesOf(*mismatch);
  const bool is_kept = mismatches_.empty() || held_bytes_ + bytes <= kMaxHeldBytes;
  const State next = is_kept ? State::kSuspect : State::kVerify;
  State state = signature.state.load();
  do {
    // Another call of this signature was reported first (loops, layers of one structure), or the guard has reverted it.
    if (state != State::kVerify && state != State::kStitched) return;
  } while (!signature.state.compare_exchange_weak(state, next));
  if (is_kept) {
    held_bytes_ += bytes;
    mismatches_.push_back(std::move(mismatch));
  } else if (std::find(postponed_.begin(), postponed_.end(), signature.id) == postponed_.end()) {
    postponed_.push_back(signature.id);
  }
  requested_.notify_one();
}

int Registry::NextPostponed() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (postponed_.empty()) return -1;
  const int id = postponed_.front();
  postponed_.pop_front();
  return id;
}

void Registry::ReportFailure(Signature& signature, const Status& status) {
  if (signature.state.exchange(State::kReverted) == State::kReverted) return;
  std::lock_guard<std::mutex> lock(mutex_);
  failures_.emplace_back(signature.id, Message(status));
  requested_.notify_one();
}

std::string Registry::NextFailure(int* signature) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failures_.empty()) return "";
  std::string text = failures_.front().second;
  *signature = failures_.front().first;
  failures_.pop_front();
  return text;
}

std::string Registry::NextRequest(int timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  requested_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                      [this] { return woken_ || !requests_.empty() || !mismatches_.empty() || !postponed_.empty() || !failures_.empty(); });
  woken_ = false;
  if (requests_.empty()) return "";
  const int id = requests_.front();
  requests_.pop_front();
  std::string request = RequestJson(*signatures_[id]);
  signatures_[id]->samples = {};
  return request;
}

void Registry::Wake() {
  std::lock_guard<std::mutex> lock(mutex_);
  woken_ = true;
  requested_.notify_all();
}

std::unique_ptr<Mismatch> Registry::NextMismatch() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (mismatches_.empty()) return nullptr;
  auto first = std::move(mismatches_.front());
  mismatches_.pop_front();
  held_bytes_ -= BytesOf(*first);
  return first;
}

Signature* Registry::signature(int id) {
  std::lock_guard<std::mutex> lock(mutex_);
  return id >= 0 && id < static_cast<int>(signatures_.size()) ? signatures_[id].get() : nullptr;
}

}  // namespace stitchfleet

// ---------------------------------------------------------------------------------------------------------------------------
// The C interface that plugin/native/library.py calls through ctypes. Returned strings are malloc'ed: free them with
// stitchfleet_free.

namespace {
using stitchfleet::Registry;
using stitchfleet::Signature;
using stitchfleet::State;

void CopyError(char* error, size_t capacity, const std::string& text) {
  if (error == nullptr || capacity == 0) return;
  std::strncpy(error, text.c_str(), capacity - 1);
  error[capacity - 1] = 0;
}

std::vector<stitchfleet::OutputSpec> ReadOutputs(const StitchfleetKernel& kernel) {
  std::vector<stitchfleet::OutputSpec> outputs(kernel.output_count);
  const int64_t* shapes = kernel.output_shapes;
  for (int64_t i = 0; i < kernel.output_count; ++i) {
    stitchfleet::OutputSpec& output = outputs[i];
    output.dtype = static_cast<tensorflow::DataType>(kernel.output_dtypes[i]);
    const int64_t rank = *shapes++;
    for (int64_t d = 0; d < rank; ++d) output.shape.AddDim(*shapes++);
    output.tolerance = {kernel.tolerances[2 * i], kernel.tolerances[2 * i + 1], 0.0};
    for (int64_t k = 0; k < kernel.alias_count; ++k) {
      if (kernel.aliases[2 * k] == i) output.aliases.push_back(static_cast<int>(kernel.aliases[2 * k + 1]));
    }
  }
  return outputs;
}

// Loads the function of a CPU kernel. Returns nullptr and a line in `error` on failure.
StitchKernel LoadFunction(const StitchfleetKernel& kernel, char* error, size_t error_capacity) {
  void* handle = dlopen(kernel.library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    CopyError(error, error_capacity, dlerror());
    return nullptr;
  }
  auto function = reinterpret_cast<StitchKernel>(dlsym(handle, kernel.symbol));
  if (function == nullptr) CopyError(error, error_capacity, std::string("no symbol ") + kernel.symbol);
  return function;
}

// Describes a GPU kernel, which the driver loads at its first call. Returns nullptr and a line in `error` if there is no driver.
std::shared_ptr<stitchfleet::DeviceKernel> DescribeDeviceKernel(const StitchfleetKernel& kernel, char* error, size_t error_capacity) {
  std::string reason;
  if (stitchfleet::CudaDriver::Get(&reason) == nullptr) {
    CopyError(error, error_capacity, reason);
    return nullptr;
  }
  auto described = std::make_shared<stitchfleet::DeviceKernel>();
  described->image.assign(kernel.image, kernel.image_bytes);
  described->symbol = kernel.symbol;
  described->grid = static_cast<unsigned>(kernel.grid);
  described->block = static_cast<unsigned>(kernel.block);
  described->shared_bytes = static_cast<unsigned>(kernel.shared_bytes);
  described->cooperative = kernel.cooperative != 0;
  described->by_table = kernel.by_table != 0;
  for (int64_t i = 0; i < kernel.tensor_count; ++i) {
    const auto kind = static_cast<stitchfleet::DeviceTensor::Kind>(kernel.tensors[2 * i]);
    described->tensors.push_back({kind, static_cast<int>(kernel.tensors[2 * i + 1])});
  }
  return described;
}

// Gives a signature its executable. Returns 0, or 1 and a line in `error`.
int Install(int signature_id, std::unique_ptr<stitchfleet::Executable> executable, char* error, size_t error_capacity) {
  Signature* signature = Registry::Get().signature(signature_id);
  if (signature == nullptr) {
    CopyError(error, error_capacity, "no such signature");
    return 1;
  }
  signature->executable.store(executable.release(), std::memory_order_release);  // never freed: a step may be using it
  State expected = State::kFallback;
  signature->state.compare_exchange_strong(expected, State::kReady);
  return 0;
}
}  // namespace

extern "C" {

void stitchfleet_free(void* pointer) { free(pointer); }
void* stitchfleet_alloc(size_t bytes) { return malloc(bytes); }

char* stitchfleet_next_request(int timeout_ms) {
  const std::string request = Registry::Get().NextRequest(timeout_ms);
  return request.empty() ? nullptr : strdup(request.c_str());
}

void stitchfleet_wake() { Registry::Get().Wake(); }

int64_t stitchfleet_kernel_bytes() { return sizeof(StitchfleetKernel); }

// Gives a signature its kernel, and makes it READY if it is FALLBACK. Returns 0, or 1 and a line in `error`.
int stitchfleet_install(int signature_id, const StitchfleetKernel* kernel, char* error, size_t error_capacity) {
  auto executable = std::make_unique<stitchfleet::Executable>();
  if (kernel->library != nullptr) {
    executable->kernel = LoadFunction(*kernel, error, error_capacity);
    if (executable->kernel == nullptr) return 1;
  } else {
    executable->device_kernel = DescribeDeviceKernel(*kernel, error, error_capacity);
    if (executable->device_kernel == nullptr) return 1;
  }
  executable->has_parallel_phases = kernel->parallel_phases > 0;
  executable->scratch_bytes = kernel->scratch_bytes;
  executable->kernel_inputs.assign(kernel->inputs, kernel->inputs + kernel->input_count);
  executable->parameters.assign(kernel->parameters, kernel->parameters + kernel->parameter_count);
  executable->outputs = ReadOutputs(*kernel);
  return Install(signature_id, std::move(executable), error, error_capacity);
}

// The state of a signature; -1 if there is no such signature.
int stitchfleet_state(int signature_id) {
  Signature* signature = Registry::Get().signature(signature_id);
  return signature == nullptr ? -1 : static_cast<int>(signature->state.load());
}

// Moves a signature from one state to another. Returns 1 if it was not in `from` (below 0: any state).
int stitchfleet_move(int signature_id, int from, int to) {
  Signature* signature = Registry::Get().signature(signature_id);
  if (signature == nullptr) return 1;
  if (from < 0) {
    signature->state.store(static_cast<State>(to));
    return 0;
  }
  State expected = static_cast<State>(from);
  return signature->state.compare_exchange_strong(expected, static_cast<State>(to)) ? 0 : 1;
}

// Raises the absolute term in the tolerance of one output to the distance that the guard's float64 oracle allows two right results.
int stitchfleet_allow(int signature_id, int output, double absolute) {
  Signature* signature = Registry::Get().signature(signature_id);
  if (signature == nullptr) return 1;
  const stitchfleet::Executable* old = signature->executable.load();
  if (old == nullptr || output < 0 || output >= static_cast<int>(old->outputs.size())) return 1;
  auto changed = std::make_unique<stitchfleet::Executable>(*old);
  double& allowed = changed->outputs[output].tolerance.absolute;
  allowed = std::max(allowed, absolute);
  signature->worst_ratio.store(0.0);  // it was measured with the tolerance that proved too tight
  signature->executable.store(changed.release(), std::memory_order_release);
  return 0;
}

// The counters of a signature. integers: state, fallback calls, verify calls, stitched calls, mismatches, last good step, timed
// calls, their nanoseconds in the fallback and in the kernel, timed calls in which the kernel took a quarter longer. reals: worst
// ratio, largest error. Returns 1 if there is no such signature.
int stitchfleet_statistics(int signature_id, int64_t* integers, double* reals) {
  Signature* signature = Registry::Get().signature(signature_id);
  if (signature == nullptr) return 1;
  integers[0] = static_cast<int64_t>(signature->state.load());
  integers[1] = static_cast<int64_t>(signature->fallback_calls.load());
  integers[2] = static_cast<int64_t>(signature->verify_calls.load());
  integers[3] = static_cast<int64_t>(signature->stitched_calls.load());
  integers[4] = static_cast<int64_t>(signature->mismatches.load());
  integers[5] = signature->last_good_step.load();
  integers[6] = signature->timed_calls.load();
  integers[7] = signature->fallback_ns.load();
  integers[8] = signature->kernel_ns.load();
  integers[9] = signature->slower_calls.load();
  reals[0] = signature->worst_ratio.load();
  reals[1] = signature->largest_error.load();
  return 0;
}

// The counters of a cluster: calls without a signature, gave up on new signatures, enabled. Returns 1 if there is no such cluster.
int stitchfleet_cluster_statistics(const char* name, int64_t* integers) {
  stitchfleet::Cluster* cluster = Registry::Get().FindCluster(name);
  if (cluster == nullptr) return 1;
  integers[0] = static_cast<int64_t>(cluster->unsigned_calls.load());
  integers[1] = cluster->gave_up.load();
  integers[2] = cluster->enabled.load();
  return 0;
}

int stitchfleet_enable_cluster(const char* name, int enabled) {
  Registry::Get().FindOrCreateCluster(name)->enabled.store(enabled != 0);
  return 0;
}

void stitchfleet_enable(int enabled) { Registry::Get().enabled.store(enabled != 0); }

// Begins a step. Signatures with turn % stride == offset are compared again in it (stride 0: none).
void stitchfleet_begin_step(int64_t step, int sample_stride, int sample_offset) {
  Registry& registry = Registry::Get();
  registry.current_step.store(step, std::memory_order_relaxed);
  registry.sample_offset.store(sample_offset, std::memory_order_relaxed);
  registry.sample_stride.store(sample_stride, std::memory_order_relaxed);
}

// The address of `unverified_calls`, which does not change.
const void* stitchfleet_unverified_calls() { return &Registry::Get().unverified_calls; }

// A mismatch with its tensors, or nullptr. Destroy it with stitchfleet_mismatch_free.
void* stitchfleet_next_mismatch() { return Registry::Get().NextMismatch().release(); }

// A signature whose mismatch could not be kept; -1 if there is none.
int stitchfleet_next_postponed() { return Registry::Get().NextPostponed(); }

// Why a device refused the kernel of *signature, malloc'ed; nullptr if there is no failure.
char* stitchfleet_next_failure(int* signature) {
  const std::string text = Registry::Get().NextFailure(signature);
  return text.empty() ? nullptr : strdup(text.c_str());
}
void stitchfleet_mismatch_free(void* mismatch) { delete static_cast<stitchfleet::Mismatch*>(mismatch); }

// integers: signature, output, step, worst index, number of inputs, number of outputs. reals: expected and actual value at that
// index, largest error, worst ratio.
void stitchfleet_mismatch_facts(void* pointer, int64_t* integers, double* reals) {
  const auto* mismatch = static_cast<const stitchfleet::Mismatch*>(pointer);
  integers[0] = mismatch->signature;
  integers[1] = mismatch->output;
  integers[2] = mismatch->step;
  integers[3] = mismatch->comparison.worst_index;
  integers[4] = static_cast<int64_t>(mismatch->inputs.size());
  integers[5] = static_cast<int64_t>(mismatch->expected.size());
  reals[0] = mismatch->comparison.expected;
  reals[1] = mismatch->comparison.actual;
  reals[2] = mismatch->comparison.largest_error;
  reals[3] = mismatch->comparison.worst_ratio;
}

// A tensor of a mismatch. which: 0 input, 1 expected, 2 actual. Sets its size, dtype, rank (at most 16) and extents. The data live as
// long as the mismatch.
const void* stitchfleet_mismatch_tensor(void* pointer, int which, int index, int64_t* bytes, int* dtype, int* rank, int64_t* shape) {
  const auto* mismatch = static_cast<const stitchfleet::Mismatch*>(pointer);
  const auto& tensors = which == 0 ? mismatch->inputs : which == 1 ? mismatch->expected : mismatch->actual;
  const tensorflow::Tensor& tensor = tensors.at(index);
  *bytes = static_cast<int64_t>(tensor.TotalBytes());
  *dtype = static_cast<int>(tensor.dtype());
  *rank = std::min(16, tensor.dims());
  for (int d = 0; d < *rank; ++d) shape[d] = tensor.dim_size(d);
  return tensor.tensor_data().data();
}

}  // extern "C"
