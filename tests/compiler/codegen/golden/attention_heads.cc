// graph attention_heads {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[1024,256] broadcast(%1), dimensions={1}
//   %3 = f32[1024,256] add(%0, %2)
//   %4 = f32[8,128,4,64] reshape(%3)
//   %5 = f32[8,4,128,64] transpose(%4), permutation={0,2,1,3}
//   return %5
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    #pragma omp simd
    for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
      const float t1 = b1[(r / 512) * 32768 + (r % 128) * 256 + (r / 128 % 4) * 64 + k64_1];
      const float t2 = b2[(r / 128 % 4) * 64 + k64_1];
      const float t3 = (t1 + t2);
      b0[r * 64 + k64_1] = t3;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2]};
  stitch_kernel_nest0(tensors, 4096, 179, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[0], (void*)inputs[1]};
  runtime->parallel_for(runtime, 23, 8180, stitch_kernel_phase0, all);
}
