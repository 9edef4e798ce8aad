// graph sum_f32_100x64_0 {
//   %0 = f32[100,64] parameter(), number=0
//   %1 = f32[] constant(), literal={0.0}
//   %2 = f32[100,64] reduce_window(%0, %1), kind=sum, window={WindowDimension(size=100, stride=1, padding_low=99, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    __attribute__((aligned(64))) float total[32];
    #pragma omp simd
    for (int v = 0; v < 32; ++v) {
      total[v] = 0x0.0p+0f;
    }
    for (int k = 0; k < 100; ++k) {
      #pragma omp simd
      for (int w = 0; w < 32; ++w) {
        const float t1 = b0[k * 64 + r * 32 + w];
        total[w] = (total[w] + t1);
        const float scan2 = (float)total[w];
        b1[k * 64 + r * 32 + w] = scan2;
      }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 2, 2, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], outputs[0]};
  stitch_kernel_phase0(all, 0, 1);
}
