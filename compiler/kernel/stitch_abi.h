/* The C ABI between a generated kernel and its caller (the Stitch op, the self-check, the stand-alone runner).
 *
 * Plain C with no headers beyond the compiler's own, so that any C or C++ compiler can build a kernel and any runtime can load it.
 * A kernel exports one function of type StitchKernel for each cluster that it holds. It never allocates, never throws and never
 * keeps state: everything that it writes is in `outputs` and `scratch`.
 */
#ifndef STITCHFLEET_STITCH_ABI_H_
#define STITCHFLEET_STITCH_ABI_H_

#define STITCH_ABI_VERSION 2

#ifdef __cplusplus
extern "C" {
#endif

/* One piece of a phase. The pieces of a phase may run in any order and at the same time; none may wait for another. */
typedef void (*StitchTask)(void* argument, long long first, long long last);

typedef struct StitchRuntime {
  /* Calls task over [0, count) in ranges, on the caller's thread and on others, and returns when all are done: a fork and a join.
   * cost_ns is the work of one index in nanoseconds, from which the runtime chooses the ranges; a range has at least one index. */
  void (*parallel_for)(struct StitchRuntime* self, long long count, long long cost_ns, StitchTask task, void* argument);
  int thread_count; /* number of threads that parallel_for can use, including the caller's; at least 1 */
} StitchRuntime;

/* How a runtime chooses the ranges: the plugin's on TensorFlow's pool (parallel_for.h) and the test runtime (test_runtime.c).
 * Below STITCH_SERIAL_BELOW_NS of work in all, a phase runs on the caller's thread: a fork and a join cost some 2 to 20 us (measured
 * on the build machine, TensorFlow 2.15). A range has at least STITCH_LEAST_RANGE_NS of work; there are STITCH_RANGES_PER_THREAD
 * ranges per thread if the work suffices, so that a slow thread does not delay the phase. */
#define STITCH_SERIAL_BELOW_NS 15000
#define STITCH_LEAST_RANGE_NS 4000
#define STITCH_RANGES_PER_THREAD 4

/* inputs[i], outputs[i]: dense row-major tensors, aligned to at least 16 bytes (64 if the runtime can); a tensor without elements may
 * be NULL. For a kernel for many shapes, inputs[n], n being the number of inputs, is the address of its parameters: as many 64-bit
 * words as its metadata lists for the shape of this call. scratch: scratch_bytes of the kernel's metadata, aligned to 64, contents
 * undefined; NULL if 0. An output may share memory with an input only if the metadata lists the pair as aliasable. */
typedef void (*StitchKernel)(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime);

#ifdef __cplusplus
}
#endif
#endif /* STITCHFLEET_STITCH_ABI_H_ */
