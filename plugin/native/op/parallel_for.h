// The kernels' runtime on TensorFlow's own intra-op thread pool; there is no second pool.
//
// The calling thread takes ranges too, so if the pool is busy with a matrix product, only its help is lost. A task never waits for
// another (stitch_abi.h), so a pool thread that comes late finds no range left and returns: the caller waits only for ranges that
// have begun.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_PARALLEL_FOR_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_PARALLEL_FOR_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "stitch_abi.h"
#include "tensorflow/core/platform/threadpool.h"

namespace stitchfleet {

class PoolRuntime {
 public:
  // is_shared: whether the pool may help; if not, every phase runs on the calling thread.
  PoolRuntime(tensorflow::thread::ThreadPool* pool, bool is_shared) : pool_(pool) {
    abi_.parallel_for = &PoolRuntime::ParallelFor;
    abi_.thread_count = pool == nullptr || !is_shared ? 1 : std::max(1, pool->NumThreads());
  }
  StitchRuntime* abi() { return &abi_; }

 private:
  struct Shared {
    StitchTask task;
    void* argument;
    long long count, range;
    std::atomic<long long> next{0}, finished{0};

    void Work() {
      for (;;) {
        const long long first = next.fetch_add(range, std::memory_order_relaxed);
        if (first >= count) return;
        const long long last = std::min(count, first + range);
        task(argument, first, last);
        finished.fetch_add(last - first, std::memory_order_release);
      }
    }
  };

  static void ParallelFor(StitchRuntime* self, long long count, long long cost_ns, StitchTask task, void* argument) {
    PoolRuntime* runtime = reinterpret_cast<PoolRuntime*>(self);  // abi_ is the first member
    const long long total_ns = count * std::max<long long>(1, cost_ns);
    const int threads = self->thread_count;
    if (threads <= 1 || count <= 1 || total_ns < STITCH_SERIAL_BELOW_NS) {
      if (count > 0) task(argument, 0, count);
      return;
    }
    const long long shares = static_cast<long long>(threads) * STITCH_RANGES_PER_THREAD;
    const long long by_threads = (count + shares - 1) / shares;
    const long long by_cost = (STITCH_LEAST_RANGE_NS + cost_ns - 1) / std::max<long long>(1, cost_ns);
    auto shared = std::make_shared<Shared>();
    shared->task = task;
    shared->argument = argument;
    shared->count = count;
    shared->range = std::max<long long>(1, std::max(by_threads, by_cost));
    const long long ranges = (count + shared->range - 1) / shared->range;
    const long long helpers = std::min<long long>(threads, ranges) - 1;
    for (long long i = 0; i < helpers; ++i) runtime->pool_->Schedule([shared] { shared->Work(); });
    shared->Work();
    for (int spins = 0; shared->finished.load(std::memory_order_acquire) < count; ++spins) {
      if (spins < 2000) RelaxCpu();
      else std::this_thread::yield();
    }
  }

  static void RelaxCpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  StitchRuntime abi_;
  tensorflow::thread::ThreadPool* pool_;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_PARALLEL_FOR_H_
