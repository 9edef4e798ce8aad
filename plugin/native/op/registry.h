// The state that all Stitch ops of a process share and that Python controls: clusters, their signatures, executables, states,
// counters.
//
// A cluster is a structure (its name, with a hash, is the op's attribute `cluster`); a signature is one set of input shapes and
// values seen for it. Both live as long as the process: op kernels are created and destroyed with executors, counters and kernels
// stay. Reading during a step takes no lock; adding a signature or installing a kernel takes one mutex.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_REGISTRY_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_REGISTRY_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "guard/compare.h"
#include "op/kernel_description.h"
#include "stitch_abi.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/hash.h"
#include "versions/status.h"

namespace stitchfleet {

struct DeviceKernel;

// The state of a signature; stitch_op.cc says what a call does in each.
enum class State : int {
#define SIGNATURE_STATE(enumerator, number) enumerator = number,
#include "op/interface.def"
};

// The dtype and shape of one input, and its value if lowering needs that, as the request for a kernel has them.
struct InputDescription {
  int dtype = 0;
  std::vector<int64_t> shape;
  bool is_value = false;
  std::string value;  // raw bytes, if is_value
};

// The first elements of an input, as raw bytes, in the call that requested a kernel.
struct InputSample {
  int input = 0;
  std::string bytes;
};

// One output of a kernel, and the tolerance with which it is compared with TensorFlow's own result.
struct OutputSpec {
  tensorflow::DataType dtype;
  tensorflow::TensorShape shape;
  Tolerance tolerance;
  std::vector<int> aliases;  // op inputs whose buffer the kernel may write this output into
};

// An installed kernel: its function, and what a call must know of it. It is never freed, since a step may be using it.
struct Executable {
  StitchKernel kernel = nullptr;
  std::shared_ptr<const DeviceKernel> device_kernel;  // on a GPU, instead of `kernel`
  bool has_parallel_phases = false;  // whether other threads may help
  int64_t scratch_bytes = 0;
  std::vector<int> kernel_inputs;  // op inputs, in the kernel's order
  std::vector<int64_t> parameters;  // this shape's parameters of a binary for many shapes; passed after the last input
  std::vector<OutputSpec> outputs;  // the op's results, new values of variables, whether its demands are met
};

struct Cluster;

// One set of input shapes and values of a cluster: its state, its executable, the counters of its calls.
struct Signature {
  int id = 0;
  int turn = 0;  // its step in a stride of sampled steps: a hash of cluster and shapes, so equal on all ranks of a job
  Cluster* cluster = nullptr;
  std::vector<int64_t> key;
  std::vector<InputDescription> inputs;
  std::vector<InputSample> samples;  // empty once the request has been sent
  bool changing = false;  // whether the op that requested the kernel has had other shapes before
  std::string device;     // the device that the kernel is built for, in JSON; "" for the CPU
  std::atomic<State> state{State::kFallback};
  std::atomic<const Executable*> executable{nullptr};
  std::atomic<uint64_t> fallback_calls{0}, verify_calls{0}, stitched_calls{0}, mismatches{0};
  std::atomic<int64_t> last_good_step{-1};
  std::atomic<double> worst_ratio{0.0}, largest_error{0.0};
  std::atomic<int64_t> timed_calls{0}, fallback_ns{0}, kernel_ns{0};  // of calls in which both ran on the same tensors
  std::atomic<int64_t> slower_calls{0};                               // timed calls in which the kernel took a quarter longer

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

// A cluster gives up on new signatures if it has kMaxSignatures, or if after kFewSignatures four of five calls still bring a new one:
// its shapes never settle (XLA's "megamorphic" rule compares compilations with executions in the same way). Its signatures stay in
// use.
constexpr int kMaxSignatures = 512;
constexpr int kFewSignatures = 64;
constexpr double kCallsPerSignature = 1.25;

// All Stitch ops of one structure. unsigned_calls: number of calls without a signature.
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

  // Number of calls so far that had a signature.
  uint64_t Calls() const {
    uint64_t calls = 0;
    for (int i = 0; i < signature_count.load(std::memory_order_acquire); ++i) {
      const Signature& one = *signatures[i];
      calls += one.fallback_calls.load() + one.verify_calls.load() + one.stitched_calls.load();
    }
    return calls;
  }
};

// A failed comparison. output: the first output that differs. The tensors are copies: the op's inputs, TensorFlow's results,
// the kernel's.
struct Mismatch {
  int signature = 0;
  int output = 0;
  int64_t step = 0;
  Comparison comparison;
  std::vector<tensorflow::Tensor> inputs, expected, actual;
};

class Registry {
 public:
  // The process's registry. It is never destroyed.
  static Registry& Get();

  Cluster* FindOrCreateCluster(const std::string& name);
  // Adds a signature and queues the request for its kernel. Returns nullptr if the cluster gives up on new signatures.
  Signature* AddSignature(Cluster* cluster, const std::vector<int64_t>& key, std::vector<InputDescription> inputs, bool changing,
                          const std::string& device, std::vector<InputSample> samples);
  // Reports a failed comparison: the signature becomes SUSPECT, and the mismatch waits for the guard. If waiting mismatches take too
  // much memory already, the signature becomes VERIFY instead, since the guard could not judge it: it is compared in each call until
  // a mismatch can be kept.
  void ReportMismatch(Signature& signature, std::unique_ptr<Mismatch> mismatch);
  // Reports that the device refuses the kernel: the signature becomes REVERTED.
  void ReportFailure(Signature& signature, const Status& status);

  // The state by which a call acts: that of the signature, but VERIFY instead of STITCHED if this step samples it, and FALLBACK if
  // all kernels are switched off.
  State EffectiveState(const Signature& signature) const {
    if (!enabled.load(std::memory_order_relaxed)) return State::kFallback;
    const State state = signature.state.load(std::memory_order_acquire);
    if (state != State::kStitched) return state;
    const int stride = sample_stride.load(std::memory_order_relaxed);
    if (stride > 0 && signature.turn % stride == sample_offset.load(std::memory_order_relaxed)) return State::kVerify;
    return state;
  }

  std::string NextRequest(int timeout_ms);  // a request for a kernel as JSON; "" if there is none
  void Wake();                              // ends a NextRequest that waits
  std::unique_ptr<Mismatch> NextMismatch();  // nullptr if there is none
  int NextPostponed();                      // a signature whose mismatch could not be kept, -1 if there is none
  std::string NextFailure(int* signature);  // why a device refused the kernel of *signature, "" if there is no failure
  Signature* signature(int id);
  Cluster* FindCluster(const std::string& name);

  std::atomic<bool> enabled{true};
  std::atomic<int> sample_stride{0}, sample_offset{0};
  std::atomic<int64_t> current_step{0};
  std::atomic<int64_t> unverified_calls{0};  // calls of signatures that are VERIFY or SUSPECT; not those of samples

 private:
  std::mutex mutex_;
  std::condition_variable requested_;
  std::unordered_map<std::string, std::unique_ptr<Cluster>> clusters_;
  std::deque<std::unique_ptr<Signature>> signatures_;
  std::deque<int> requests_;
  std::deque<std::unique_ptr<Mismatch>> mismatches_;
  int64_t held_bytes_ = 0;  // size of the tensors in mismatches_
  std::deque<int> postponed_;
  std::deque<std::pair<int, std::string>> failures_;
  bool woken_ = false;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_REGISTRY_H_
