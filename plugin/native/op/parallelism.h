// Whether an op's short kernel is shared with the other threads of TensorFlow's pool, decided by what has been seen of both.
//
// A fork and a join cost some microseconds where a core is idle. Where all cores are at work on other operators (two matrix products side
// by side on two cores), a helper that has begun is preempted for as long as the scheduler likes, and one that has ended spins on a core
// that somebody else wants: of kernels of 30 us, 300 us were seen so, and a step of a soft actor-critic lost more by that than stitching
// saved. No thread can see which is the case, so it is measured. In a trial both ways are taken by turns; the one with the shorter mean is
// taken until the next trial, which comes the later the more often trials have agreed, since a job changes.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_PARALLELISM_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_PARALLELISM_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace stitchfleet {

// Of one op. Any number of threads may call it at once: what they see of each other's trials is a trial's noise.
class Parallelism {
 public:
  enum Way : int { kShared = 0, kAlone = 1 };

  struct Choice {
    Way way;
    bool is_timed;  // a call of a trial: Observe wants to know how long it took
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

  void Observe(Way way, int64_t ns) {
    if (way == kAlone && ns > kLongNs) {  // the help is worth any wait
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

    // Without the longest call: in it the whole machine may have stood still.
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
  static constexpr int64_t kLongNs = 250'000;  // a wait of as long as was seen costs such a kernel no more than help saves

  std::atomic<uint64_t> calls_{0}, trial_{0}, interval_{kShortestInterval};
  std::atomic<int> best_{kShared};
  std::atomic<bool> is_long_{false};
  Seen seen_[2];
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_PARALLELISM_H_
