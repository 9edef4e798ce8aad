// graph cross_entropy {
//   %0 = f32[160,8000] parameter(), number=0
//   %1 = s32[160] parameter(), number=1
//   %2 = f32[160] reduce(%0), dimensions={1}, kind=max
//   %3 = f32[160,8000] broadcast(%2), dimensions={0}
//   %4 = f32[160,8000] subtract(%0, %3)
//   %5 = f32[160,8000] exp(%4)
//   %6 = f32[160] reduce(%5), dimensions={1}, kind=sum
//   %7 = f32[160] log(%6)
//   %8 = f32[160,8000] broadcast(%7), dimensions={0}
//   %9 = f32[160,8000] subtract(%4, %8)
//   %10 = s32[160,8000] broadcast(%1), dimensions={0}
//   %11 = s32[160,8000] iota(), dimension=1
//   %12 = pred[160,8000] compare(%10, %11), direction=EQ, total_order=False
//   %13 = f32[] constant(), literal={0.0}
//   %14 = f32[160,8000] broadcast(%13), dimensions={}
//   %15 = f32[160,8000] select(%12, %9, %14)
//   %16 = f32[160] reduce(%15), dimensions={1}, kind=sum
//   %17 = f32[160] negate(%16)
//   %18 = f32[] constant(), literal={1.0}
//   %19 = f32[160,8000] broadcast(%18), dimensions={}
//   %20 = f32[] constant(), literal={0.0}
//   %21 = f32[160,8000] broadcast(%20), dimensions={}
//   %22 = f32[160,8000] exp(%9)
//   %23 = f32[160,8000] select(%12, %19, %21)
//   %24 = f32[160,8000] subtract(%22, %23)
//   %25 = f32[] reduce(%17), dimensions={0}, kind=sum
//   %26 = f32[] constant(), literal={0.00625}
//   %27 = f32[] multiply(%25, %26)
//   return %27, %17, %24
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const int* __restrict b2 = (const int*)tensors[2];
  float* __restrict b3 = (float*)tensors[3];
  double* __restrict b4 = (double*)tensors[4];
  for (long long task = first_task; task < last_task; ++task) {
    const long long first_row = task * rows_per_task;
    long long last_row = first_row + rows_per_task;
    last_row = last_row < rows ? last_row : rows;
    double task22[1];
    for (int i = 0; i < 1; ++i) task22[i] = 0x0.0p+0;
    for (long long r = first_row; r < last_row; ++r) {
      __attribute__((aligned(64))) float lane1[32];
      for (int i = 0; i < 32; ++i) lane1[i] = -__builtin_inff();
      __attribute__((aligned(64))) int lane1_nan[32] = {};
      for (int k8000_1_base = 0; k8000_1_base < 8000; k8000_1_base += 32) {
        #pragma omp simd
        for (int lane = 0; lane < 32; ++lane) {
          const int k8000_1 = k8000_1_base + lane;
          const float t2 = b1[r * 8000 + k8000_1];
          stitch_extreme<true>(lane1[lane], lane1_nan[lane], t2);
        }
      }
      const float sum3 = stitch_fold_extreme<32, true>(lane1, lane1_nan);
      __attribute__((aligned(64))) float lane4[32];
      for (int i = 0; i < 32; ++i) lane4[i] = 0x0.0p+0f;
      for (int k8000_1_base = 0; k8000_1_base < 8000; k8000_1_base += 32) {
        __builtin_prefetch(&b1[r * 8000 + k8000_1_base + 8000], 0, 2);
        __builtin_prefetch(&b1[r * 8000 + k8000_1_base + 8016], 0, 2);
        #pragma omp simd
        for (int lane = 0; lane < 32; ++lane) {
          const int k8000_1 = k8000_1_base + lane;
          const float t5 = b1[r * 8000 + k8000_1];
          const float t6 = (t5 - sum3);
          const float t7 = stitch_exp(t6);
          lane4[lane] = (lane4[lane] + t7);
        }
      }
      const float sum8 = stitch_fold<32>(lane4, [](auto a, auto b) { return (a + b); });
      __attribute__((aligned(64))) float lane9[32];
      for (int i = 0; i < 32; ++i) lane9[i] = 0x0.0p+0f;
      const int t10 = b2[r];
      const float t15 = stitch_log(sum8);
      for (int k8000_1_base = 0; k8000_1_base < 8000; k8000_1_base += 32) {
        #pragma omp simd
        for (int lane = 0; lane < 32; ++lane) {
          const int k8000_1 = k8000_1_base + lane;
          const int t11 = (int)(k8000_1);
          const bool t12 = (t10 == t11);
          const float t13 = b1[r * 8000 + k8000_1];
          const float t14 = (t13 - sum3);
          const float t16 = (t14 - t15);
          const float t17 = (t12 ? t16 : 0x0.0p+0f);
          const float t18 = stitch_exp(t16);
          const float t19 = (t12 ? 0x1.0000000000000p+0f : 0x0.0p+0f);
          const float t20 = (t18 - t19);
          b0[r * 8000 + k8000_1] = t20;
          lane9[lane] = (lane9[lane] + t17);
        }
      }
      const float sum21 = stitch_fold<32>(lane9, [](auto a, auto b) { return (a + b); });
      float lane23[1];
      for (int i = 0; i < 1; ++i) lane23[i] = 0x0.0p+0f;
      const float t24 = (-(sum21));
      b3[r] = t24;
      lane23[0] = (lane23[0] + t24);
      const float sum25 = stitch_fold<1>(lane23, [](auto a, auto b) { return (a + b); });
      task22[0] = (task22[0] + sum25);
    }
    #pragma omp simd
    for (int it26 = 0; it26 < 1; ++it26) {
      const double t27 = task22[0];
      b4[task] = t27;
    }
  }
}

static void stitch_kernel_nest1(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const double* __restrict b0 = (const double*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long block_first = first_row; block_first < last_row; block_first += 1) {
    const long long block_last = block_first + 1 < last_row ? block_first + 1 : last_row;
    double total[1];
    for (int i = 0; i < 1; ++i) total[i] = 0x0.0p+0;
    for (int t = 0; t < 32; ++t) {
      #pragma omp simd
      for (long long r = block_first; r < block_last; ++r) {
        const double part = b0[t];
        total[0] = (total[0] + part);
      }
    }
    #pragma omp simd
    for (long long r = block_first; r < block_last; ++r) {
      const double sum = total[0];
      const float rounded = (float)sum;
      b1[0] = rounded;
    }
  }
}

static void stitch_kernel_nest2(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  const float t1 = b0[0];
  const float t2 = (t1 * 0x1.99999a0000000p-8f);
  #pragma omp simd
  for (long long r = first_row; r < last_row; ++r) {
    b1[0] = t2;
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3], all[4]};
  stitch_kernel_nest0(tensors, 160, 5, first, last);
}

static void stitch_kernel_phase1(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[4], all[5]};
  stitch_kernel_nest1(tensors, 1, 1, first, last);
}

static void stitch_kernel_phase2(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[5], all[6]};
  stitch_kernel_nest2(tensors, 1, 1, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[2], (void*)inputs[0], (void*)inputs[1], outputs[1], (char*)scratch + 0, (char*)scratch + 256, outputs[0]};
  runtime->parallel_for(runtime, 32, 59672, stitch_kernel_phase0, all);
  stitch_kernel_phase1(all, 0, 1);
  stitch_kernel_phase2(all, 0, 1);
}
