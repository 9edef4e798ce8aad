// graph clip_by_global_norm {
//   %0 = f32[300,300] parameter(), number=0
//   %1 = f32[1000] parameter(), number=1
//   %2 = f32[300,300] multiply(%0, %0)
//   %3 = f32[] reduce(%2), dimensions={0,1}, kind=sum
//   %4 = f32[1000] multiply(%1, %1)
//   %5 = f32[] reduce(%4), dimensions={0}, kind=sum
//   %6 = f32[] add(%3, %5)
//   %7 = f32[] constant(), literal={1.0}
//   %8 = f32[] add(%6, %7)
//   %9 = f32[] rsqrt(%8)
//   %10 = f32[] constant(), literal={1.0}
//   %11 = f32[] minimum(%9, %10)
//   %12 = f32[300,300] broadcast(%11), dimensions={}
//   %13 = f32[300,300] multiply(%0, %12)
//   %14 = f32[1000] broadcast(%11), dimensions={}
//   %15 = f32[1000] multiply(%1, %14)
//   return %13, %15
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  double* __restrict b1 = (double*)tensors[1];
  for (long long task = first_task; task < last_task; ++task) {
    const long long first_row = task * rows_per_task;
    long long last_row = first_row + rows_per_task;
    last_row = last_row < rows ? last_row : rows;
    double task1[1];
    for (int i = 0; i < 1; ++i) task1[i] = 0x0.0p+0;
    for (long long block_first = first_row; block_first < last_row; block_first += 8192) {
      const long long block_last = block_first + 8192 < last_row ? block_first + 8192 : last_row;
      __attribute__((aligned(64))) float lane2[32];
      for (int i = 0; i < 32; ++i) lane2[i] = 0x0.0p+0f;
      long long r_base = block_first;
      for (; r_base + 32 <= block_last; r_base += 32) {
        #pragma omp simd
        for (int lane = 0; lane < 32; ++lane) {
          const long long r = r_base + lane;
          const float t3 = b0[r];
          const float t4 = (t3 * t3);
          lane2[lane] = (lane2[lane] + t4);
        }
      }
      {
        const int rest = (int)(block_last - r_base);
        #pragma omp simd
        for (int lane = 0; lane < rest; ++lane) {
          const long long r = r_base + lane;
          const float t3 = b0[r];
          const float t4 = (t3 * t3);
          lane2[lane] = (lane2[lane] + t4);
        }
      }
      const float sum5 = stitch_fold<32>(lane2, [](auto a, auto b) { return (a + b); });
      task1[0] = (task1[0] + sum5);
    }
    #pragma omp simd
    for (int it6 = 0; it6 < 1; ++it6) {
      const double t7 = task1[0];
      b1[task] = t7;
    }
  }
}

static void stitch_kernel_nest1(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  double* __restrict b1 = (double*)tensors[1];
  for (long long task = first_task; task < last_task; ++task) {
    const long long first_row = task * rows_per_task;
    long long last_row = first_row + rows_per_task;
    last_row = last_row < rows ? last_row : rows;
    double task1[1];
    for (int i = 0; i < 1; ++i) task1[i] = 0x0.0p+0;
    for (long long block_first = first_row; block_first < last_row; block_first += 8192) {
      const long long block_last = block_first + 8192 < last_row ? block_first + 8192 : last_row;
      __attribute__((aligned(64))) float lane2[32];
      for (int i = 0; i < 32; ++i) lane2[i] = 0x0.0p+0f;
      long long r_base = block_first;
      for (; r_base + 32 <= block_last; r_base += 32) {
        #pragma omp simd
        for (int lane = 0; lane < 32; ++lane) {
          const long long r = r_base + lane;
          const float t3 = b0[r];
          const float t4 = (t3 * t3);
          lane2[lane] = (lane2[lane] + t4);
        }
      }
      {
        const int rest = (int)(block_last - r_base);
        #pragma omp simd
        for (int lane = 0; lane < rest; ++lane) {
          const long long r = r_base + lane;
          const float t3 = b0[r];
          const float t4 = (t3 * t3);
          lane2[lane] = (lane2[lane] + t4);
        }
      }
      const float sum5 = stitch_fold<32>(lane2, [](auto a, auto b) { return (a + b); });
      task1[0] = (task1[0] + sum5);
    }
    #pragma omp simd
    for (int it6 = 0; it6 < 1; ++it6) {
      const double t7 = task1[0];
      b1[0] = t7;
    }
  }
}

static void stitch_kernel_nest2(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const double* __restrict b0 = (const double*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long block_first = first_row; block_first < last_row; block_first += 1) {
    const long long block_last = block_first + 1 < last_row ? block_first + 1 : last_row;
    double total[1];
    for (int i = 0; i < 1; ++i) total[i] = 0x0.0p+0;
    for (int t = 0; t < 6; ++t) {
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

static void stitch_kernel_nest3(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const double* __restrict b0 = (const double*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long block_first = first_row; block_first < last_row; block_first += 1) {
    const long long block_last = block_first + 1 < last_row ? block_first + 1 : last_row;
    double total[1];
    for (int i = 0; i < 1; ++i) total[i] = 0x0.0p+0;
    for (int t = 0; t < 1; ++t) {
      #pragma omp simd
      for (long long r = block_first; r < block_last; ++r) {
        const double part = b0[0];
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

static void stitch_kernel_nest4(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  float* __restrict b3 = (float*)tensors[3];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  const float t2 = b1[0];
  const float t3 = b2[0];
  const float t4 = (t2 + t3);
  const float t5 = (t4 + 0x1.0000000000000p+0f);
  const float t6 = (1 / __builtin_sqrtf(t5));
  const float t7 = stitch_min(t6, 0x1.0000000000000p+0f);
  #pragma omp simd
  for (long long r = first_row; r < last_row; ++r) {
    const float t1 = b0[r];
    const float t8 = (t1 * t7);
    b3[r] = t8;
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  static const struct { int function, buffers; long long first, last, rows, rows_per_task; int numbers[2]; } table[] = {
    {0, 2, 0, 6, 90000, 15040, {0, 1}},
    {1, 2, 6, 7, 1000, 1000, {2, 3}},
  };
  for (const auto& row : table) {
    if (row.last <= first || row.first >= last) continue;
    const long long begin = (first > row.first ? first : row.first) - row.first;
    const long long end = (last < row.last ? last : row.last) - row.first;
    void* tensors[2];
    for (int i = 0; i < row.buffers; ++i) tensors[i] = all[row.numbers[i]];
    switch (row.function) {
      case 0: stitch_kernel_nest0(tensors, row.rows, row.rows_per_task, begin, end); break;
      case 1: stitch_kernel_nest1(tensors, row.rows, row.rows_per_task, begin, end); break;
    }
  }
}

static void stitch_kernel_phase1(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  static const struct { int function, buffers; long long first, last, rows, rows_per_task; int numbers[2]; } table[] = {
    {0, 2, 0, 1, 1, 1, {1, 4}},
    {1, 2, 1, 2, 1, 1, {3, 5}},
  };
  for (const auto& row : table) {
    if (row.last <= first || row.first >= last) continue;
    const long long begin = (first > row.first ? first : row.first) - row.first;
    const long long end = (last < row.last ? last : row.last) - row.first;
    void* tensors[2];
    for (int i = 0; i < row.buffers; ++i) tensors[i] = all[row.numbers[i]];
    switch (row.function) {
      case 0: stitch_kernel_nest2(tensors, row.rows, row.rows_per_task, begin, end); break;
      case 1: stitch_kernel_nest3(tensors, row.rows, row.rows_per_task, begin, end); break;
    }
  }
}

static void stitch_kernel_phase2(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  if (first < 7 && last > 0) {
    static const struct { long long start, rows; int numbers[4]; } instances[] = {
      {0, 90000, {0, 4, 5, 6}},
      {90048, 1000, {2, 4, 5, 7}},
    };
    const long long begin = (first > 0 ? first - 0 : 0) * 15104;
    const long long end = last < 7 ? (last - 0) * 15104 : 91072;
    int at = 0;
    for (int above = 2; above - at > 1;) {
      const int middle = (at + above) / 2;
      if (instances[middle].start <= begin) at = middle; else above = middle;
    }
    for (; at < 2 && instances[at].start < end; ++at) {
      const auto& one = instances[at];
      const long long from = begin > one.start ? begin - one.start : 0;
      const long long to = end - one.start < one.rows ? end - one.start : one.rows;
      if (from >= to) continue;
      void* tensors[4];
      for (int i = 0; i < 4; ++i) tensors[i] = all[one.numbers[i]];
      stitch_kernel_nest4(tensors, one.rows, 1, from, to);
    }
  }
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], (char*)scratch + 0, (void*)inputs[1], (char*)scratch + 64, (char*)scratch + 128, (char*)scratch + 192, outputs[0], outputs[1]};
  runtime->parallel_for(runtime, 7, 4030, stitch_kernel_phase0, all);
  stitch_kernel_phase1(all, 0, 2);
  runtime->parallel_for(runtime, 7, 6890, stitch_kernel_phase2, all);
}
