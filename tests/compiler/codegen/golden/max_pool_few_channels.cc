// graph max_pool {
//   %0 = f32[8,56,56,3] parameter(), number=0
//   %1 = f32[] constant(), literal={-inf}
//   %2 = f32[8,28,28,3] reduce_window(%0, %1), kind=max, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  int zero = 0; __asm__("" : "+r"(zero));
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    __attribute__((aligned(64))) float lane1[8];
    for (int i = 0; i < 8; ++i) lane1[i] = -__builtin_inff();
    {
      #pragma omp simd
      for (int lane = 0; lane < 3; ++lane) {
        const int k9_3 = 0 + lane;
        const float t2 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0 + zero) & (((r / 3 % 28) * 2 - 1) >= 0 + zero)) ? b0[(r / 84) * 336 + k9_3 * 168 + (r / 3 % 28) * 6 + (r % 3) - 171] : (float)0);
        const float t3 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0) & (((r / 3 % 28) * 2 - 1) >= 0)) ? t2 : -__builtin_inff());
        const float t4 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0 + zero)) ? b0[(r / 84) * 336 + k9_3 * 168 + (r / 3 % 28) * 6 + (r % 3) - 168] : (float)0);
        const float t5 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0)) ? t4 : -__builtin_inff());
        const float t6 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0 + zero)) ? b0[(r / 84) * 336 + k9_3 * 168 + (r / 3 % 28) * 6 + (r % 3) - 165] : (float)0);
        const float t7 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0)) ? t6 : -__builtin_inff());
        const float t8 = stitch_max(t3, t5);
        const float t9 = stitch_max(t8, t7);
        lane1[lane] = stitch_max(lane1[lane], t9);
      }
    }
    const float sum10 = stitch_fold_extreme<8, true>(lane1);
    const float t11 = stitch_max(sum10, -__builtin_inff());
    b1[r] = t11;
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 18816, 607, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], outputs[0]};
  runtime->parallel_for(runtime, 31, 8054, stitch_kernel_phase0, all);
}
