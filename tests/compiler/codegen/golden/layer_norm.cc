// graph layer_norm {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[256] parameter(), number=2
//   %3 = f32[1024] reduce(%0), dimensions={1}, kind=sum
//   %4 = f32[] constant(), literal={0.00390625}
//   %5 = f32[1024] broadcast(%4), dimensions={}
//   %6 = f32[1024] multiply(%3, %5)
//   %7 = f32[1024,256] broadcast(%6), dimensions={0}
//   %8 = f32[1024,256] subtract(%0, %7)
//   %9 = f32[1024,256] multiply(%8, %8)
//   %10 = f32[1024] reduce(%9), dimensions={1}, kind=sum
//   %11 = f32[] constant(), literal={0.00390625}
//   %12 = f32[1024] broadcast(%11), dimensions={}
//   %13 = f32[1024] multiply(%10, %12)
//   %14 = f32[] constant(), literal={0.001}
//   %15 = f32[1024] broadcast(%14), dimensions={}
//   %16 = f32[1024] add(%13, %15)
//   %17 = f32[1024] rsqrt(%16)
//   %18 = f32[1024,256] broadcast(%17), dimensions={0}
//   %19 = f32[1024,256] multiply(%8, %18)
//   %20 = f32[1024,256] broadcast(%1), dimensions={1}
//   %21 = f32[1024,256] multiply(%19, %20)
//   %22 = f32[1024,256] broadcast(%2), dimensions={1}
//   %23 = f32[1024,256] add(%21, %22)
//   return %23, %6, %17
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  float* __restrict b2 = (float*)tensors[2];
  float* __restrict b3 = (float*)tensors[3];
  const float* __restrict b4 = (const float*)tensors[4];
  const float* __restrict b5 = (const float*)tensors[5];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    __attribute__((aligned(64))) float lane1[32];
    for (int i = 0; i < 32; ++i) lane1[i] = 0x0.0p+0f;
    for (int k256_1_base = 0; k256_1_base < 256; k256_1_base += 32) {
      #pragma omp simd
      for (int lane = 0; lane < 32; ++lane) {
        const int k256_1 = k256_1_base + lane;
        const float t2 = b1[r * 256 + k256_1];
        lane1[lane] = (lane1[lane] + t2);
      }
    }
    const float sum3 = stitch_fold<32>(lane1, [](auto a, auto b) { return (a + b); });
    const float t4 = (sum3 * 0x1.0000000000000p-8f);
    b2[r] = t4;
    __attribute__((aligned(64))) float lane5[32];
    for (int i = 0; i < 32; ++i) lane5[i] = 0x0.0p+0f;
    for (int k256_1_base = 0; k256_1_base < 256; k256_1_base += 32) {
      #pragma omp simd
      for (int lane = 0; lane < 32; ++lane) {
        const int k256_1 = k256_1_base + lane;
        const float t6 = b1[r * 256 + k256_1];
        const float t7 = (t6 - t4);
        const float t8 = (t7 * t7);
        lane5[lane] = (lane5[lane] + t8);
      }
    }
    const float sum9 = stitch_fold<32>(lane5, [](auto a, auto b) { return (a + b); });
    const float t10 = (sum9 * 0x1.0000000000000p-8f);
    const float t11 = (t10 + 0x1.0624de0000000p-10f);
    const float t12 = (1 / __builtin_sqrtf(t11));
    b3[r] = t12;
    #pragma omp simd
    for (int k256_1 = 0; k256_1 < 256; ++k256_1) {
      const float t13 = b1[r * 256 + k256_1];
      const float t14 = (t13 - t4);
      const float t15 = (t14 * t12);
      const float t16 = b4[k256_1];
      const float t17 = (t15 * t16);
      const float t18 = b5[k256_1];
      const float t19 = (t17 + t18);
      b0[r * 256 + k256_1] = t19;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3], all[4], all[5]};
  stitch_kernel_nest0(tensors, 1024, 41, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[0], outputs[1], outputs[2], (void*)inputs[1], (void*)inputs[2]};
  runtime->parallel_for(runtime, 25, 8308, stitch_kernel_phase0, all);
}
