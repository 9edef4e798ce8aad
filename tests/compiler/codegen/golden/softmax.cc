// graph softmax {
//   %0 = f32[512,128] parameter(), number=0
//   %1 = f32[512] reduce(%0), dimensions={1}, kind=max
//   %2 = f32[512,128] broadcast(%1), dimensions={0}
//   %3 = f32[512,128] subtract(%0, %2)
//   %4 = f32[512,128] exp(%3)
//   %5 = f32[512] reduce(%4), dimensions={1}, kind=sum
//   %6 = f32[512,128] broadcast(%5), dimensions={0}
//   %7 = f32[512,128] divide(%4, %6)
//   return %7
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    __attribute__((aligned(64))) float tile1[128];
    __attribute__((aligned(64))) float lane2[32];
    for (int i = 0; i < 32; ++i) lane2[i] = -__builtin_inff();
    for (int k128_1_base = 0; k128_1_base < 128; k128_1_base += 32) {
      #pragma omp simd
      for (int lane = 0; lane < 32; ++lane) {
        const int k128_1 = k128_1_base + lane;
        const float t3 = b1[r * 128 + k128_1];
        lane2[lane] = stitch_max(lane2[lane], t3);
      }
    }
    const float sum4 = stitch_fold_extreme<32, true>(lane2);
    __attribute__((aligned(64))) float lane5[32];
    for (int i = 0; i < 32; ++i) lane5[i] = 0x0.0p+0f;
    for (int k128_1_base = 0; k128_1_base < 128; k128_1_base += 32) {
      #pragma omp simd
      for (int lane = 0; lane < 32; ++lane) {
        const int k128_1 = k128_1_base + lane;
        const float t6 = b1[r * 128 + k128_1];
        const float t7 = (t6 - sum4);
        const float t8 = stitch_exp(t7);
        tile1[k128_1] = t8;
        lane5[lane] = (lane5[lane] + t8);
      }
    }
    const float sum9 = stitch_fold<32>(lane5, [](auto a, auto b) { return (a + b); });
    #pragma omp simd
    for (int k128_1 = 0; k128_1 < 128; ++k128_1) {
      const float t10 = tile1[k128_1];
      const float t11 = (t10 / sum9);
      b0[r * 128 + k128_1] = t11;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 512, 47, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[0]};
  runtime->parallel_for(runtime, 11, 8029, stitch_kernel_phase0, all);
}
