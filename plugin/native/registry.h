// What the Stitch ops of a process share, and what Python steers: clusters, their signatures, executables, states and counters.
//
// A cluster is a structure (the op's `cluster` attribute, a hash of it); a signature is one set of input shapes and values seen
// for it. Both live as long as the process: op kernels come and go with executors, counters and kernels stay.
// Reading on the step's path takes no lock; adding a signature or installing a kernel takes one mutex.

#ifndef STITCHFLEET_PLUGIN_NATIVE_REGISTRY_H_
#define STITCHFLEET_PLUGIN_NATIVE_REGISTRY_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "compare.h"
#include "kernel_description.h"
#include "stitch_abi.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/hash.h"

namespace stitchfleet {

struct DeviceKernel;

enum class State : int { kFallback = 0, kReady = 1, kVerify = 2, kStitched = 3, kSuspect = 4, kReverted = 5 };

struct InputDescription {
  int dtype = 0;
  std::vector<int64_t> shape;
  bool is_value = false;
  std::string value;  // raw bytes, when is_value
};

// Elements of an input of the call that asked for a kernel, from its beginning, as raw bytes.
struct InputSample {
  int input = 0;
  std::string bytes;
};

struct OutputSpec {
  tensorflow::DataType dtype;
  tensorflow::TensorShape shape;
  Tolerance tolerance;
  std::vector<int> aliases;  // op inputs whose buffer the kernel may write this output into
};

struct Executable {
  StitchKernel kernel = nullptr;
  std::shared_ptr<const DeviceKernel> device_kernel;  // of a GPU's instead
  bool has_parallel_phases = false;  // there is something that other threads may help with
  int64_t scratch_bytes = 0;
  std::vector<int> kernel_inputs;  // op inputs, in the order of the kernel's
  std::vector<int64_t> parameters;  // of a binary for many shapes: what makes it this shape's; it lies behind the last input
  std::vector<OutputSpec> outputs;  // the op's results, then the new values of the variables that it writes
};

struct Cluster;

struct Signature {
  int id = 0;
  int turn = 0;  // which step of a stride samples it: of its cluster and shapes alone, so that all ranks of a job sample it in one step
  Cluster* cluster = nullptr;
  std::vector<int64_t> key;
  std::vector<InputDescription> inputs;
  std::vector<InputSample> samples;  // until the request has been made
  bool changing = false;  // the op that asked has had other shapes before
  std::string device;     // what the kernel is made for, in JSON; "" for the processor
  std::atomic<State> state{State::kFallback};
  std::atomic<const Executable*> executable{nullptr};
  std::atomic<uint64_t> fallback_calls{0}, verify_calls{0}, stitched_calls{0}, mismatches{0};
  std::atomic<int64_t> last_good_step{-1};
  std::atomic<double> worst_ratio{0.0}, largest_error{0.0};
  std::atomic<int64_t> timed_calls{0}, fallback_ns{0}, kernel_ns{0};  // where both ran on the same tensors, one after the other
  std::atomic<int64_t> slower_calls{0};                               // of these those in which the kernel took longer by a quarter

  void ObserveError(double ratio, double error) {
    RaiseTo(worst_ratio, ratio);
    RaiseTo(largest_error, error);
  }

 private:
  static void RaiseTo(std::atomic<double>& target, double value) {
    double seen = target.load(std::memory_order_relaxed);
    while (value > seen && !target.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
};

// A cluster gives up on new signatures when it has as many as it can hold, or when four of five calls still bring a new one: shapes
// that never settle (XLA's "megamorphic" rule compares compilations with executions in the same way). Those it has go on.
constexpr int kMaxSignatures = 512;
constexpr int kFewSignatures = 64;
constexpr double kCallsPerSignature = 1.25;

struct Cluster {
  std::string name;
  std::atomic<bool> enabled{true};
  std::atomic<bool> gave_up{false};
  std::atomic<uint64_t> unsigned_calls{0};
  std::atomic<int> signature_count{0};
  std::array<Signature*, kMaxSignatures> signatures{};
  std::array<uint64_t, kMaxSignatures> hashes{};

  static uint64_t Hash(const std::vector<int64_t>& key) {
    return tensorflow::Hash64(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t));
  }

  Signature* Find(const std::vector<int64_t>& key, uint64_t hash) const {
    const int count = signature_count.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i) {
      if (hashes[i] == hash && signatures[i]->key == key) return signatures[i];
    }
    return nullptr;
  }

  // All calls that found a signature so far.
  uint64_t Calls() const {
    uint64_t calls = 0;
    for (int i = 0; i < signature_count.load(std::memory_order_acquire); ++i) {
      const Signature& one = *signatures[i];
      calls += one.fallback_calls.load() + one.verify_calls.load() + one.stitched_calls.load();
    }
    return calls;
  }
};

struct Mismatch {
  int signature = 0;
  int output = 0;
  int64_t step = 0;
  Comparison comparison;
  std::vector<tensorflow::Tensor> inputs, expected, actual;
};

class Registry {
 public:
  static Registry& Get();

  Cluster* FindOrCreateCluster(const std::string& name);
  // nullptr when the cluster has too many signatures already.
  Signature* AddSignature(Cluster* cluster, const std::vector<int64_t>& key, std::vector<InputDescription> inputs, bool changing,
                          const std::string& device, std::vector<InputSample> samples);
  // A comparison failed: SUSPECT, and the guard finds the mismatch. Where the tensors of those that wait take too much memory already,
  // the signature is not SUSPECT, which nobody could end: it is compared in each of its calls (VERIFY) until one can be kept.
  void ReportMismatch(Signature& signature, std::unique_ptr<Mismatch> mismatch);
  // The device refuses the kernel: REVERTED from now on.
  void ReportFailure(Signature& signature, const absl::Status& status);

  // What a call has to do: the signature's state, changed to VERIFY where this step is sampled, to FALLBACK where all is off.
  State EffectiveState(const Signature& signature) const {
    if (!enabled.load(std::memory_order_relaxed)) return State::kFallback;
    const State state = signature.state.load(std::memory_order_acquire);
    if (state != State::kStitched) return state;
    const int stride = sample_stride.load(std::memory_order_relaxed);
    if (stride > 0 && signature.turn % stride == sample_offset.load(std::memory_order_relaxed)) return State::kVerify;
    return state;
  }

  std::string NextRequest(int timeout_ms);  // JSON of a signature that wants a kernel, "" after the time-out
  void Wake();                              // ends a NextRequest that waits
  std::unique_ptr<Mismatch> NextMismatch();
  int NextPostponed();                      // a signature whose mismatch could not be kept, -1 where there is none
  std::string NextFailure(int* signature);  // why a device refused a kernel, "" where none did
  Signature* signature(int id);
  Cluster* FindCluster(const std::string& name);

  std::atomic<bool> enabled{true};
  std::atomic<int> sample_stride{0}, sample_offset{0};
  std::atomic<int64_t> current_step{0};

 private:
  std::mutex mutex_;
  std::condition_variable requested_;
  std::unordered_map<std::string, std::unique_ptr<Cluster>> clusters_;
  std::deque<std::unique_ptr<Signature>> signatures_;
  std::deque<int> requests_;
  std::deque<std::unique_ptr<Mismatch>> mismatches_;
  int64_t held_bytes_ = 0;  // of their tensors
  std::deque<int> postponed_;
  std::deque<std::pair<int, std::string>> failures_;
  bool woken_ = false;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_REGISTRY_H_
