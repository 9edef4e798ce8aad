/* A StitchRuntime for tests, the self-check and timing: POSIX threads that live as long as the runtime, or one thread that runs every
 * index by itself, backwards, to show that tasks do not depend on their order. A job does not use it: there the runtime is the
 * framework's own pool.
 *
 * kind 0: every phase in parallel, in as many ranges as there are tasks to share (for the self-check)
 * kind 1: one thread, each index by itself, the last one first
 * kind 2: as the plugin's PoolRuntime decides (parallel_for.h): short phases serially, a few ranges per thread (for timing). Subnormals
 *         are flushed to zero, as TensorFlow's threads do: an exp that underflows took three times as long on a Zen 4 otherwise
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "stitch_abi.h"

enum { ALWAYS = 0, REVERSED = 1, AS_THE_POOL = 2 };
enum { MOST_THREADS = 64, SPINS = 1000 };

typedef struct TestRuntime {
  StitchRuntime base;
  int kind;
  long long calls; /* calls of parallel_for, that is, phases that were not serial */
  pthread_t others[MOST_THREADS];
  int started;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  atomic_llong turn; /* counts phases; a thread starts working when it changes */
  atomic_int ending;
  StitchTask task;
  void* argument;
  long long count, step;
  atomic_llong next;
  atomic_int busy; /* threads that have not yet left the phase */
} TestRuntime;

static void work_on(TestRuntime* runtime) {
  for (;;) {
    const long long first = atomic_fetch_add(&runtime->next, runtime->step);
    if (first >= runtime->count) return;
    const long long last = first + runtime->step < runtime->count ? first + runtime->step : runtime->count;
    runtime->task(runtime->argument, first, last);
  }
}

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Has this thread flush subnormals to zero. Returns its former mode. */
static unsigned flush_subnormals(void) {
#if defined(__x86_64__)
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);
  return before;
#else
  return 0;
#endif
}

static void restore_subnormals(unsigned before) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(before);
#endif
}

static void* thread_main(void* argument) {
  TestRuntime* runtime = (TestRuntime*)argument;
  long long seen = 0;
  if (runtime->kind == AS_THE_POOL) flush_subnormals();
  for (;;) {
    for (int i = 0; i < SPINS && atomic_load(&runtime->turn) == seen; ++i) pause_briefly();
    if (atomic_load(&runtime->turn) == seen) {
      pthread_mutex_lock(&runtime->mutex);
      while (atomic_load(&runtime->turn) == seen) pthread_cond_wait(&runtime->wake, &runtime->mutex);
      pthread_mutex_unlock(&runtime->mutex);
    }
    seen += 1;
    if (atomic_load(&runtime->ending)) return NULL;
    work_on(runtime);
    atomic_fetch_sub(&runtime->busy, 1);
  }
}

static void next_turn(TestRuntime* runtime) {
  pthread_mutex_lock(&runtime->mutex);
  atomic_fetch_add(&runtime->turn, 1);
  pthread_cond_broadcast(&runtime->wake);
  pthread_mutex_unlock(&runtime->mutex);
}

static void parallel_for(StitchRuntime* self, long long count, long long cost_ns, StitchTask task, void* argument) {
  TestRuntime* runtime = (TestRuntime*)self;
  runtime->calls += 1;
  if (runtime->kind == REVERSED) {
    for (long long i = count - 1; i >= 0; --i) task(argument, i, i + 1);
    return;
  }
  const long long shares = (long long)(runtime->started + 1) * STITCH_RANGES_PER_THREAD;
  long long step = count / shares > 0 ? count / shares : 1;
  if (runtime->kind == AS_THE_POOL) {
    cost_ns = cost_ns > 1 ? cost_ns : 1;
    const long long by_cost = (STITCH_LEAST_RANGE_NS + cost_ns - 1) / cost_ns;
    step = (count + shares - 1) / shares > by_cost ? (count + shares - 1) / shares : by_cost;
    if (count <= 1 || count * cost_ns < STITCH_SERIAL_BELOW_NS) step = count;
  }
  if (runtime->started == 0 || step >= count) {
    if (count > 0) task(argument, 0, count);
    return;
  }
  runtime->task = task;
  runtime->argument = argument;
  runtime->count = count;
  runtime->step = step;
  atomic_store(&runtime->next, 0);
  atomic_store(&runtime->busy, runtime->started);
  next_turn(runtime);
  work_on(runtime);
  for (int spins = 0; atomic_load(&runtime->busy) > 0; ++spins) {
    if (spins < SPINS) pause_briefly(); else sched_yield();
  }
}

StitchRuntime* stitch_test_runtime_new(int threads, int kind) {
  TestRuntime* runtime = (TestRuntime*)calloc(1, sizeof(TestRuntime));
  if (runtime == NULL) return NULL;
  threads = threads < 1 || kind == REVERSED ? 1 : threads < MOST_THREADS ? threads : MOST_THREADS;
  runtime->base.parallel_for = parallel_for;
  runtime->base.thread_count = threads;
  runtime->kind = kind;
  pthread_mutex_init(&runtime->mutex, NULL);
  pthread_cond_init(&runtime->wake, NULL);
  for (int i = 1; i < threads; ++i) {
    runtime->started += pthread_create(&runtime->others[runtime->started], NULL, thread_main, runtime) == 0;
  }
  return &runtime->base;
}

/* Calls a kernel as a thread of the pool does. */
void stitch_test_run_flushed(StitchKernel kernel, const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  const unsigned before = flush_subnormals();
  kernel(inputs, outputs, scratch, runtime);
  restore_subnormals(before);
}

long long stitch_test_runtime_calls(const StitchRuntime* runtime) { return ((const TestRuntime*)runtime)->calls; }

void stitch_test_runtime_delete(StitchRuntime* self) {
  TestRuntime* runtime = (TestRuntime*)self;
  atomic_store(&runtime->ending, 1);
  next_turn(runtime);
  for (int i = 0; i < runtime->started; ++i) pthread_join(runtime->others[i], NULL);
  pthread_mutex_destroy(&runtime->mutex);
  pthread_cond_destroy(&runtime->wake);
  free(runtime);
}

/* ---- a copy, to measure bandwidth: a "kernel" of one input and one output ---------------------------------------------------- */

typedef struct Copy {
  const char* from;
  char* to;
  long long bytes, piece;
} Copy;

static void copy_pieces(void* argument, long long first, long long last) {
  const Copy* copy = (const Copy*)argument;
  const long long begin = first * copy->piece;
  const long long end = last * copy->piece < copy->bytes ? last * copy->piece : copy->bytes;
  if (end > begin) memcpy(copy->to + begin, copy->from + begin, (size_t)(end - begin));
}

/* Copies `bytes` from `from` to `to`, shared among the runtime's threads as a kernel's tasks are. */
void stitch_test_copy(const void* from, void* to, long long bytes, StitchRuntime* runtime) {
  Copy copy = {(const char*)from, (char*)to, bytes, 64 * 1024};
  runtime->parallel_for(runtime, (bytes + copy.piece - 1) / copy.piece, copy.piece / 8, copy_pieces, &copy);
}
