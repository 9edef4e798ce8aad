/* A StitchRuntime for tests and the self-check: a few POSIX threads, or one thread that runs every index on its own, backwards, to
 * show that tasks do not depend on their order. Not what a job uses: there the framework's own pool is the runtime. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "stitch_abi.h"

typedef struct TestRuntime {
  StitchRuntime base;
  int reversed;
  long long calls; /* of parallel_for: phases that were not serial */
} TestRuntime;

typedef struct Work {
  StitchTask task;
  void* argument;
  long long count, step;
  atomic_llong next;
} Work;

static void* work_on(void* argument) {
  Work* work = (Work*)argument;
  for (;;) {
    const long long first = atomic_fetch_add(&work->next, work->step);
    if (first >= work->count) return NULL;
    const long long last = first + work->step < work->count ? first + work->step : work->count;
    work->task(work->argument, first, last);
  }
}

static void parallel_for(StitchRuntime* self, long long count, long long cost_ns, StitchTask task, void* argument) {
  TestRuntime* runtime = (TestRuntime*)self;
  (void)cost_ns;
  runtime->calls += 1;
  if (runtime->reversed) {
    for (long long i = count - 1; i >= 0; --i) task(argument, i, i + 1);
    return;
  }
  const int threads = self->thread_count < 64 ? self->thread_count : 64;
  Work work = {task, argument, count, count / (threads * 4) > 0 ? count / (threads * 4) : 1, 0};
  pthread_t others[64];
  int started = 0;
  for (int i = 1; i < threads; ++i) started += pthread_create(&others[started], NULL, work_on, &work) == 0;
  work_on(&work);
  for (int i = 0; i < started; ++i) pthread_join(others[i], NULL);
}

StitchRuntime* stitch_test_runtime_new(int threads, int reversed) {
  TestRuntime* runtime = (TestRuntime*)calloc(1, sizeof(TestRuntime));
  if (runtime == NULL) return NULL;
  runtime->base.parallel_for = parallel_for;
  runtime->base.thread_count = reversed || threads < 1 ? 1 : threads;
  runtime->reversed = reversed;
  return &runtime->base;
}

long long stitch_test_runtime_calls(const StitchRuntime* runtime) { return ((const TestRuntime*)runtime)->calls; }

void stitch_test_runtime_delete(StitchRuntime* runtime) { free(runtime); }
