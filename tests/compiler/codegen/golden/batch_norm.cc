// graph batch_norm {
//   %0 = f32[8,28,28,64] parameter(), number=0
//   %1 = f32[64] parameter(), number=1
//   %2 = f32[64] reduce(%0), dimensions={0,1,2}, kind=sum
//   %3 = f32[] constant(), literal={0.00015943877}
//   %4 = f32[64] broadcast(%3), dimensions={}
//   %5 = f32[64] multiply(%2, %4)
//   %6 = f32[8,28,28,64] broadcast(%5), dimensions={3}
//   %7 = f32[8,28,28,64] subtract(%0, %6)
//   %8 = f32[8,28,28,64] multiply(%7, %7)
//   %9 = f32[64] reduce(%8), dimensions={0,1,2}, kind=sum
//   %10 = f32[] constant(), literal={0.00015943877}
//   %11 = f32[64] broadcast(%10), dimensions={}
//   %12 = f32[64] multiply(%9, %11)
//   %13 = f32[] constant(), literal={0.001}
//   %14 = f32[64] broadcast(%13), dimensions={}
//   %15 = f32[64] add(%12, %14)
//   %16 = f32[64] rsqrt(%15)
//   %17 = f32[64] multiply(%16, %1)
//   %18 = f32[8,28,28,64] broadcast(%17), dimensions={3}
//   %19 = f32[8,28,28,64] multiply(%7, %18)
//   return %19, %5, %12
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  for (long long task = first_task; task < last_task; ++task) {
    const long long first_row = task * rows_per_task;
    long long last_row = first_row + rows_per_task;
    last_row = last_row < rows ? last_row : rows;
    __attribute__((aligned(64))) float task1[64];
    for (int i = 0; i < 64; ++i) task1[i] = 0x0.0p+0f;
    for (long long r = first_row; r < last_row; ++r) {
      #pragma omp simd
      for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
        const float t2 = b0[r * 64 + k64_1];
        task1[k64_1] = (task1[k64_1] + t2);
      }
    }
    #pragma omp simd
    for (int it3 = 0; it3 < 64; ++it3) {
      const float t4 = task1[it3];
      b1[task * 64 + it3] = t4;
    }
  }
}

static void stitch_kernel_nest1(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long block_first = first_row; block_first < last_row; block_first += 64) {
    const long long block_last = block_first + 64 < last_row ? block_first + 64 : last_row;
    __attribute__((aligned(64))) float total[64];
    for (int i = 0; i < 64; ++i) total[i] = 0x0.0p+0f;
    for (int t = 0; t < 32; ++t) {
      #pragma omp simd
      for (long long r = block_first; r < block_last; ++r) {
        const float part = b0[t * 64 + r];
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

static void stitch_kernel_nest2(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  #pragma omp simd
  for (long long r = first_row; r < last_row; ++r) {
    const float t1 = b0[r];
    const float t2 = (t1 * 0x1.4e5e0a0000000p-13f);
    b1[r] = t2;
  }
}

static void stitch_kernel_nest3(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  float* __restrict b2 = (float*)tensors[2];
  for (long long task = first_task; task < last_task; ++task) {
    const long long first_row = task * rows_per_task;
    long long last_row = first_row + rows_per_task;
    last_row = last_row < rows ? last_row : rows;
    __attribute__((aligned(64))) float task1[64];
    for (int i = 0; i < 64; ++i) task1[i] = 0x0.0p+0f;
    for (long long r = first_row; r < last_row; ++r) {
      #pragma omp simd
      for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
        const float t2 = b0[r * 64 + k64_1];
        const float t3 = b1[k64_1];
        const float t4 = (t3 * 0x1.4e5e0a0000000p-13f);
        const float t5 = (t2 - t4);
        const float t6 = (t5 * t5);
        task1[k64_1] = (task1[k64_1] + t6);
      }
    }
    #pragma omp simd
    for (int it7 = 0; it7 < 64; ++it7) {
      const float t8 = task1[it7];
      b2[task * 64 + it7] = t8;
    }
  }
}

static void stitch_kernel_nest4(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  const float* __restrict b3 = (const float*)tensors[3];
  const float* __restrict b4 = (const float*)tensors[4];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  __attribute__((aligned(64))) float ahead7[64];
  #pragma omp simd
  for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
    const float t1 = b1[k64_1];
    const float t2 = (t1 * 0x1.4e5e0a0000000p-13f);
    const float t3 = (t2 + 0x1.0624de0000000p-10f);
    const float t4 = (1 / __builtin_sqrtf(t3));
    const float t5 = b2[k64_1];
    const float t6 = (t4 * t5);
    ahead7[k64_1] = t6;
  }
  for (long long r = first_row; r < last_row; ++r) {
    #pragma omp simd
    for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
      const float t8 = ahead7[k64_1];
      const float t9 = b3[r * 64 + k64_1];
      const float t10 = b4[k64_1];
      const float t11 = (t10 * 0x1.4e5e0a0000000p-13f);
      const float t12 = (t9 - t11);
      const float t13 = (t12 * t8);
      b0[r * 64 + k64_1] = t13;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 6272, 196, first, last);
}

static void stitch_kernel_phase1(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[1], all[2]};
  stitch_kernel_nest1(tensors, 64, 64, first, last);
}

static void stitch_kernel_phase2(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  static const struct { int function, buffers; long long first, last, rows, rows_per_task; int numbers[3]; } table[] = {
    {0, 2, 0, 1, 64, 64, {2, 3}},
    {1, 3, 1, 33, 6272, 196, {0, 2, 4}},
  };
  for (const auto& row : table) {
    if (row.last <= first || row.first >= last) continue;
    const long long begin = (first > row.first ? first : row.first) - row.first;
    const long long end = (last < row.last ? last : row.last) - row.first;
    void* tensors[3];
    for (int i = 0; i < row.buffers; ++i) tensors[i] = all[row.numbers[i]];
    switch (row.function) {
      case 0: stitch_kernel_nest2(tensors, row.rows, row.rows_per_task, begin, end); break;
      case 1: stitch_kernel_nest3(tensors, row.rows, row.rows_per_task, begin, end); break;
    }
  }
}

static void stitch_kernel_phase3(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[4], all[5]};
  stitch_kernel_nest1(tensors, 64, 64, first, last);
}

static void stitch_kernel_phase4(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  static const struct { int function, buffers; long long first, last, rows, rows_per_task; int numbers[5]; } table[] = {
    {0, 2, 0, 1, 64, 64, {5, 6}},
    {1, 5, 1, 46, 6272, 140, {7, 5, 8, 0, 2}},
  };
  for (const auto& row : table) {
    if (row.last <= first || row.first >= last) continue;
    const long long begin = (first > row.first ? first : row.first) - row.first;
    const long long end = (last < row.last ? last : row.last) - row.first;
    void* tensors[5];
    for (int i = 0; i < row.buffers; ++i) tensors[i] = all[row.numbers[i]];
    switch (row.function) {
      case 0: stitch_kernel_nest2(tensors, row.rows, row.rows_per_task, begin, end); break;
      case 1: stitch_kernel_nest4(tensors, row.rows, row.rows_per_task, begin, end); break;
    }
  }
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], (char*)scratch + 0, (char*)scratch + 8192, outputs[1], (char*)scratch + 0, (char*)scratch + 8448, outputs[2], outputs[0], (void*)inputs[1]};
  runtime->parallel_for(runtime, 32, 5864, stitch_kernel_phase0, all);
  stitch_kernel_phase1(all, 0, 1);
  runtime->parallel_for(runtime, 33, 6782, stitch_kernel_phase2, all);
  stitch_kernel_phase3(all, 0, 1);
  runtime->parallel_for(runtime, 46, 7833, stitch_kernel_phase4, all);
}
