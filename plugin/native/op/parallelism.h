// Decides by measurement whether an op's short kernel shares its work with the other threads of TensorFlow's pool.
//
// A fork and a join take some microseconds if a core is idle. If all cores work on other operators (two matrix products on two
// cores), a helper that has begun may be preempted for long, and a thread that has finished spins on a core that others need: kernels
// of 30 us then took 300 us, and a step of a soft actor-critic lost more by that than stitching saved. A thread cannot know which is
// the case, so both ways are timed. A trial alternates between them; the way with the shorter mean is used until the next trial. The
// interval between trials doubles while they agree; trials go on, since a job changes.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_PARALLELISM_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_PARALLELISM_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace stitchfleet {

// Counts the loops that run at this moment, each as one op on a thread of its own. If there are as many as threads in the pool, as
// with the two directions of a recurrent layer on two cores, a kernel's help would be taken from another loop. A trial sees only its
// own op's gain by that, and would decide for it.
class RunningLoop {
 public:
  RunningLoop() { running_.fetch_add(1, std::memory_order_relaxed); }
  ~RunningLoop() { running_.fetch_sub(1, std::memory_order_relaxed); }
  RunningLoop(const RunningLoop&) = delete;
  RunningLoop& operator=(const RunningLoop&) = delete;

  static bool LeaveThreads(int threads) { return running_.load(std::memory_order_relaxed) < threads; }

 private:
  static inline std::atomic<int> running_{0};
};

// The decision for one op. Any number of threads may call it at once; how they disturb each other's trials is noise in the
// measurement.
class Parallelism {
 public:
  enum Way : int { kShared = 0, kAlone = 1 };

  struct Choice {
    Way way;
    bool is_timed;  // whether the call belongs to a trial: pass its duration to Observe
  };

  // How the next call runs its kernel.
  Choice Choose() {
    if (is_long_.load(std::memory_order_relaxed)) return {kShared, false};
    const uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed), trial = trial_.load(std::memory_order_relaxed);
    if (call < trial) return {best(), false};
    if (call < trial + 2 * kPairs) return {static_cast<Way>((call - trial) % 2), true};
    Conclude(call);
    return {best(), false};
  }

  // Records how long a timed call took, in nanoseconds.
  void Observe(Way way, int64_t ns) {
    if (way == kAlone && ns > kLongNs) {  // help always pays for a kernel of this length
      is_long_.store(true, std::memory_order_relaxed);
      return;
    }
    Seen& seen = seen_[way];
    seen.calls.fetch_add(1, std::memory_order_relaxed);
    seen.ns.fetch_add(ns, std::memory_order_relaxed);
    if (ns > seen.longest_ns.load(std::memory_order_relaxed)) seen.longest_ns.store(ns, std::memory_order_relaxed);
  }

 private:
  struct Seen {
    std::atomic<int64_t> calls{0}, ns{0}, longest_ns{0};

    // Mean without the longest call, in which the whole machine may have been stopped.
    double MeanNs() const { return static_cast<double>(ns.load() - longest_ns.load()) / static_cast<double>(calls.load() - 1); }
    void Clear() {
      calls = 0;
      ns = 0;
      longest_ns = 0;
    }
  };

  Way best() const { return static_cast<Way>(best_.load(std::memory_order_relaxed)); }

  void Conclude(uint64_t call) {
    uint64_t interval = kShortestInterval;
    if (seen_[kShared].calls.load() > 1 && seen_[kAlone].calls.load() > 1) {
      const Way best = seen_[kAlone].MeanNs() < seen_[kShared].MeanNs() ? kAlone : kShared;
      if (best_.exchange(best) == best) interval = std::min(2 * interval_.load(), kLongestInterval);
    }
    interval_ = interval;
    for (Seen& seen : seen_) seen.Clear();
    trial_ = call + interval;
  }

  static constexpr uint64_t kPairs = 16;
  static constexpr uint64_t kShortestInterval = 512, kLongestInterval = 1 << 14;
  static constexpr int64_t kLongNs = 250'000;  // the longest wait seen costs such a kernel no more than help saves

  std::atomic<uint64_t> calls_{0}, trial_{0}, interval_{kShortestInterval};
  std::atomic<int> best_{kShared};
  std::atomic<bool> is_long_{false};
  Seen seen_[2];
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_PARALLELISM_H_
