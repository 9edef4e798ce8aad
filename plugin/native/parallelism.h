// Whether an op's short kernel is shared with the other threads of TensorFlow's pool, decided by what has been seen of both.
//
// A fork and a join cost some microseconds where a core is idle. Where all cores are at work on other operators (two matrix products side
// by side on two cores), a helper that has begun is preempted for as long as the scheduler likes, and one that has ended spins on a core
// that somebody else wants: of kernels of 30 us, 300 us were seen so, and a step of a soft actor-critic lost more by that than stitching
// saved. No thread can see which is the case, so it is measured: both ways are taken by turns in the first calls, then the one with the
// shorter mean, and the other now and then, since a job changes.

#ifndef STITCHFLEET_PLUGIN_NATIVE_PARALLELISM_H_
#define STITCHFLEET_PLUGIN_NATIVE_PARALLELISM_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace stitchfleet {

// Of one op; any number of threads may call it at once. Times are nanoseconds.
class Parallelism {
 public:
  enum Way : int { kShared = 0, kAlone = 1 };

  // How the next call runs its kernel.
  Way Choose() {
    if (is_long_.load(std::memory_order_relaxed)) return kShared;
    const uint32_t call = calls_.fetch_add(1, std::memory_order_relaxed);
    if (call < 2 * kTrials) return static_cast<Way>(call % 2);
    const Way best = mean_[kAlone].load(std::memory_order_relaxed) < mean_[kShared].load(std::memory_order_relaxed) ? kAlone : kShared;
    if (call < next_probe_.load(std::memory_order_relaxed)) return best;
    // The one that is worse is tried the more rarely the longer it has been so.
    uint32_t interval = interval_.load(std::memory_order_relaxed);
    interval = best == last_best_.load(std::memory_order_relaxed) ? std::min(2 * interval, kLongestInterval) : kShortestInterval;
    interval_.store(interval, std::memory_order_relaxed);
    last_best_.store(best, std::memory_order_relaxed);
    next_probe_.store(call + interval, std::memory_order_relaxed);
    return best == kAlone ? kShared : kAlone;
  }

  // Whether Choose has anything to learn from how long the call takes.
  bool IsLearning() const { return !is_long_.load(std::memory_order_relaxed); }

  void Observe(Way way, int64_t ns) {
    if (way == kAlone && ns > kLongNs) {  // the help is worth any wait
      is_long_.store(true, std::memory_order_relaxed);
      return;
    }
    // A call in which the whole machine stood still speaks for neither.
    const double seen = static_cast<double>(std::min(ns, kLongNs));
    const double mean = mean_[way].load(std::memory_order_relaxed);
    mean_[way].store(mean == 0.0 ? seen : mean + (seen - mean) * kWeight, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kTrials = 8;
  static constexpr uint32_t kShortestInterval = 32, kLongestInterval = 1024;
  static constexpr int64_t kLongNs = 1'000'000;
  static constexpr double kWeight = 0.125;

  std::atomic<uint32_t> calls_{0}, next_probe_{2 * kTrials + kShortestInterval}, interval_{kShortestInterval};
  std::atomic<int> last_best_{-1};
  std::atomic<bool> is_long_{false};
  std::atomic<double> mean_[2] = {0.0, 0.0};
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_PARALLELISM_H_
