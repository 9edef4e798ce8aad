// graph matrix_transpose {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[1024] parameter(), number=2
//   %3 = f32[1024,256] broadcast(%1), dimensions={1}
//   %4 = f32[1024,256] add(%0, %3)
//   %5 = f32[256,1024] transpose(%4), permutation={1,0}
//   %6 = f32[256,1024] broadcast(%2), dimensions={1}
//   %7 = f32[256,1024] multiply(%5, %6)
//   return %7
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  float* __restrict b3 = (float*)tensors[3];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long block_first = first_row; block_first < last_row; block_first += 16) {
    const long long block_last = block_first + 16 < last_row ? block_first + 16 : last_row;
    for (int k1024_16 = 0; k1024_16 < 64; ++k1024_16) {
        if (block_last - block_first == 16) {
          __attribute__((aligned(64))) float t1_turned[256];
          {
            const long long r = block_first;
            const int k1024_1 = 0;
            stitch_turn_square(&b0[k1024_16 * 4096 + k1024_1 * 256 + r], 256ll, t1_turned);
          }
          for (long long r = block_first; r < block_first + 16; ++r) {
            const float t2 = b1[r];
            #pragma omp simd
            for (int k1024_1 = 0; k1024_1 < 16; ++k1024_1) {
              const long long place = (r - block_first) * 16 + k1024_1;
              const float t1 = t1_turned[place];
              const float t3 = (t1 + t2);
              const float t4 = b2[k1024_16 * 16 + k1024_1];
              const float t5 = (t3 * t4);
              b3[r * 1024 + k1024_16 * 16 + k1024_1] = t5;
            }
          }
        } else {
          for (long long r = block_first; r < block_last; ++r) {
            const float t2 = b1[r];
            #pragma omp simd
            for (int k1024_1 = 0; k1024_1 < 16; ++k1024_1) {
              const float t1 = b0[k1024_16 * 4096 + k1024_1 * 256 + r];
              const float t3 = (t1 + t2);
              const float t4 = b2[k1024_16 * 16 + k1024_1];
              const float t5 = (t3 * t4);
              b3[r * 1024 + k1024_16 * 16 + k1024_1] = t5;
            }
          }
        }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3]};
  stitch_kernel_nest0(tensors, 256, 16, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], (void*)inputs[1], (void*)inputs[2], outputs[0]};
  runtime->parallel_for(runtime, 16, 9387, stitch_kernel_phase0, all);
}
