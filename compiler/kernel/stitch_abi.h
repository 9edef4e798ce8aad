/* The C ABI between a generated kernel and whoever runs it (the Stitch op, the self-check, the stand-alone runner).
 *
 * Plain C and no headers beyond the compiler's own, so that any C or C++ compiler builds a kernel and any runtime loads it.
 * A kernel exports, for each cluster it holds, one function of type StitchKernel. It never allocates, never throws, never
 * keeps state: everything it writes is in `outputs` and `scratch`.
 */
#ifndef STITCHFLEET_STITCH_ABI_H_
#define STITCHFLEET_STITCH_ABI_H_

#define STITCH_ABI_VERSION 2

#ifdef __cplusplus
extern "C" {
#endif

/* One piece of a phase. Pieces of one phase may run in any order and at the same time; none may wait for another. */
typedef void (*StitchTask)(void* argument, long long first, long long last);

typedef struct StitchRuntime {
  /* Calls task over [0, count) in ranges, on the caller's and other threads, and returns when all is done: a fork and a join.
   * cost_ns is the work of one index in nanoseconds, by which the runtime decides the ranges; a range is never split below 1. */
  void (*parallel_for)(struct StitchRuntime* self, long long count, long long cost_ns, StitchTask task, void* argument);
  int thread_count; /* how many threads parallel_for can use, the caller's included; at least 1 */
} StitchRuntime;

/* inputs[i], outputs[i]: dense row-major tensors, aligned to at least 16 bytes (64 where the runtime can); a tensor of no elements
 * may be NULL. Of a kernel for many shapes inputs[n], n the number of inputs, is the address of its parameters: as many 64-bit words
 * as its metadata lists for the shape of this call. scratch: scratch_bytes of the kernel's metadata, aligned to 64, contents undefined; NULL when 0.
 * An output may be the same memory as an input only where the metadata lists the pair as aliasable. */
typedef void (*StitchKernel)(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime);

#ifdef __cplusplus
}
#endif
#endif /* STITCHFLEET_STITCH_ABI_H_ */
