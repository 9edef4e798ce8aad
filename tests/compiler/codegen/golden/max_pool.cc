// graph max_pool {
//   %0 = f32[8,56,56,64] parameter(), number=0
//   %1 = f32[] constant(), literal={-inf}
//   %2 = f32[8,28,28,64] reduce_window(%0, %1), kind=max, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    __attribute__((aligned(64))) float row1[64];
    for (int i = 0; i < 64; ++i) row1[i] = -__builtin_inff();
    for (int k576_192 = 0; k576_192 < 3; ++k576_192) {
      for (int k576_64 = 0; k576_64 < 3; ++k576_64) {
        {
          const long long k576_1_start1_inside = (long long)((r / 28) * 7168 + k576_192 * 3584 + (r % 28) * 128 + k576_64 * 64 - 3648);
          const long long k576_1_start1_anywhere = (((((r / 28 % 28) * 2 + k576_192 - 1) >= 0) & (((r % 28) * 2 + k576_64 - 1) >= 0)) ? k576_1_start1_inside : 0ll);
          const long long k576_1_start1 = stitch_index(k576_1_start1_anywhere);
          const int k576_1_keep1 = (((((r / 28 % 28) * 2 + k576_192 - 1) >= 0) & (((r % 28) * 2 + k576_64 - 1) >= 0)) ? (int)-1ll : (int)0ll);
          const float t3_fill = (((((r / 28 % 28) * 2 + k576_192 - 1) >= 0) & (((r % 28) * 2 + k576_64 - 1) >= 0)) ? 0x0.0p+0f : -__builtin_inff());
          #pragma omp simd
          for (int k576_1 = 0; k576_1 < 64; ++k576_1) {
            const float t2_read = b0[k576_1 + k576_1_start1];
            const float t2 = stitch_masked(t2_read, k576_1_keep1);
            const float t3 = stitch_either(t2, t3_fill);
            row1[k576_1] = stitch_max(row1[k576_1], t3);
          }
        }
      }
    }
    #pragma omp simd
    for (int it4 = 0; it4 < 64; ++it4) {
      row1[it4] = stitch_max(row1[it4], -__builtin_inff());
    }
    #pragma omp simd
    for (int it5 = 0; it5 < 64; ++it5) {
      const float t6 = row1[it5];
      b1[r * 64 + it5] = t6;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 6272, 86, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], outputs[0]};
  runtime->parallel_for(runtime, 73, 8014, stitch_kernel_phase0, all);
}
