// graph layer_norm_gradient {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[1024,256] parameter(), number=1
//   %2 = f32[256] parameter(), number=2
//   %3 = f32[1024] parameter(), number=3
//   %4 = f32[1024] parameter(), number=4
//   %5 = f32[1024,256] broadcast(%4), dimensions={0}
//   %6 = f32[1024,256] broadcast(%3), dimensions={0}
//   %7 = f32[1024,256] subtract(%0, %6)
//   %8 = f32[1024,256] multiply(%7, %5)
//   %9 = f32[1024,256] multiply(%1, %8)
//   %10 = f32[256] reduce(%9), dimensions={0}, kind=sum
//   %11 = f32[256] reduce(%1), dimensions={0}, kind=sum
//   %12 = f32[1024,256] broadcast(%2), dimensions={1}
//   %13 = f32[1024,256] multiply(%1, %12)
//   %14 = f32[1024] reduce(%13), dimensions={1}, kind=sum
//   %15 = f32[] constant(), literal={0.00390625}
//   %16 = f32[1024] broadcast(%15), dimensions={}
//   %17 = f32[1024] multiply(%14, %16)
//   %18 = f32[1024,256] broadcast(%17), dimensions={0}
//   %19 = f32[1024,256] multiply(%13, %8)
//   %20 = f32[1024] reduce(%19), dimensions={1}, kind=sum
//   %21 = f32[] constant(), literal={0.00390625}
//   %22 = f32[1024] broadcast(%21), dimensions={}
//   %23 = f32[1024] multiply(%20, %22)
//   %24 = f32[1024,256] broadcast(%23), dimensions={0}
//   %25 = f32[1024,256] subtract(%13, %18)
//   %26 = f32[1024,256] multiply(%8, %24)
//   %27 = f32[1024,256] subtract(%25, %26)
//   %28 = f32[1024,256] multiply(%27, %5)
//   return %28, %10, %11
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  const float* __restrict b3 = (const float*)tensors[3];
  const float* __restrict b4 = (const float*)tensors[4];
  const float* __restrict b5 = (const float*)tensors[5];
  float* __restrict b6 = (float*)tensors[6];
  float* __restrict b7 = (float*)tensors[7];
  for (long long task = first_task; task < last_task; ++task) {
    const long long first_row = task * rows_per_task;
    long long last_row = first_row + rows_per_task;
    last_row = last_row < rows ? last_row : rows;
    __attribute__((aligned(64))) float task1[256];
    for (int i = 0; i < 256; ++i) task1[i] = 0x0.0p+0f;
    __attribute__((aligned(64))) float task2[256];
    for (int i = 0; i < 256; ++i) task2[i] = 0x0.0p+0f;
    for (long long r = first_row; r < last_row; ++r) {
      __attribute__((aligned(64))) float lane3[32];
      for (int i = 0; i < 32; ++i) lane3[i] = 0x0.0p+0f;
      __attribute__((aligned(64))) float lane4[32];
      for (int i = 0; i < 32; ++i) lane4[i] = 0x0.0p+0f;
      const float t7 = b3[r];
      const float t9 = b4[r];
      for (int k256_1_base = 0; k256_1_base < 256; k256_1_base += 32) {
        #pragma omp simd
        for (int lane = 0; lane < 32; ++lane) {
          const int k256_1 = k256_1_base + lane;
          const float t5 = b1[r * 256 + k256_1];
          const float t6 = b2[r * 256 + k256_1];
          const float t8 = (t6 - t7);
          const float t10 = (t8 * t9);
          const float t11 = (t5 * t10);
          const float t12 = b5[k256_1];
          const float t13 = (t5 * t12);
          const float t14 = (t13 * t10);
          task1[k256_1] = (task1[k256_1] + t11);
          task2[k256_1] = (task2[k256_1] + t5);
          lane3[lane] = (lane3[lane] + t13);
          lane4[lane] = (lane4[lane] + t14);
        }
      }
      const float sum15 = stitch_fold<32>(lane3, [](auto a, auto b) { return (a + b); });
      const float sum16 = stitch_fold<32>(lane4, [](auto a, auto b) { return (a + b); });
      const float t20 = (sum15 * 0x1.0000000000000p-8f);
      const float t25 = (sum16 * 0x1.0000000000000p-8f);
      #pragma omp simd
      for (int k256_1 = 0; k256_1 < 256; ++k256_1) {
        const float t17 = b1[r * 256 + k256_1];
        const float t18 = b5[k256_1];
        const float t19 = (t17 * t18);
        const float t21 = (t19 - t20);
        const float t22 = b2[r * 256 + k256_1];
        const float t23 = (t22 - t7);
        const float t24 = (t23 * t9);
        const float t26 = (t24 * t25);
        const float t27 = (t21 - t26);
        const float t28 = (t27 * t9);
        b0[r * 256 + k256_1] = t28;
      }
    }
    #pragma omp simd
    for (int it29 = 0; it29 < 256; ++it29) {
      const float t30 = task1[it29];
      b6[task * 256 + it29] = t30;
    }
    #pragma omp simd
    for (int it31 = 0; it31 < 256; ++it31) {
      const float t32 = task2[it31];
      b7[task * 256 + it31] = t32;
    }
  }
}

static void stitch_kernel_nest1(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long block_first = first_row; block_first < last_row; block_first += 256) {
    const long long block_last = block_first + 256 < last_row ? block_first + 256 : last_row;
    __attribute__((aligned(64))) float total[256];
    for (int i = 0; i < 256; ++i) total[i] = 0x0.0p+0f;
    for (int t = 0; t < 32; ++t) {
      #pragma omp simd
      for (long long r = block_first; r < block_last; ++r) {
        const float part = b0[t * 256 + r];
        total[r - block_first] = (total[r - block_first] + part);
      }
    }
    #pragma omp simd
    for (long long r = block_first; r < block_last; ++r) {
      const float sum = total[r - block_first];
      b1[r] = sum;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7]};
  stitch_kernel_nest0(tensors, 1024, 32, first, last);
}

static void stitch_kernel_phase1(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  static const struct { int function, buffers; long long first, last, rows, rows_per_task; int numbers[2]; } table[] = {
    {0, 2, 0, 1, 256, 256, {6, 8}},
    {0, 2, 1, 2, 256, 256, {7, 9}},
  };
  for (const auto& row : table) {
    if (row.last <= first || row.first >= last) continue;
    const long long begin = (first > row.first ? first : row.first) - row.first;
    const long long end = (last < row.last ? last : row.last) - row.first;
    void* tensors[2];
    for (int i = 0; i < row.buffers; ++i) tensors[i] = all[row.numbers[i]];
    switch (row.function) {
      case 0: stitch_kernel_nest1(tensors, row.rows, row.rows_per_task, begin, end); break;
    }
  }
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[1], (void*)inputs[0], (void*)inputs[3], (void*)inputs[4], (void*)inputs[2], (char*)scratch + 0, (char*)scratch + 32768, outputs[1], outputs[2]};
  runtime->parallel_for(runtime, 32, 11233, stitch_kernel_phase0, all);
  stitch_kernel_phase1(all, 0, 2);
}
