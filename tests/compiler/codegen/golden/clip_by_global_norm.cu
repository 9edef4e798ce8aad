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

// 89 blocks of 256 threads, 256 bytes of shared memory

struct stitch_kernel_Tensors { void* p[5]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 90000);
  STITCH_GLOBAL(double, b1, p1, 88);
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 1024;
  const int last_row = first_row + 1024 < 90000 ? first_row + 1024 : 90000;
  double task1 = 0x0.0p+0;
  for (int block_first = first_row; block_first < last_row; block_first += 8192) {
    const int block_last = block_first + 8192 < last_row ? block_first + 8192 : last_row;
    float lane2 = 0x0.0p+0f;
    const int whole = block_first + (block_last - block_first) / 4 * 4;
    for (int r_first = block_first + thread * 4; r_first < whole; r_first += 1024) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t3_vector, b0, r_first, aligned);
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int r = r_first + element;
        const float t3 = t3_vector.value[element];
        const float t4 = (t3 * t3);
        lane2 = ((float)lane2 + t4);
      }
    }
    for (int r = whole + thread; r < block_last; r += 256) {
      const float t3 = b0[r];
      const float t4 = (t3 * t3);
      lane2 = ((float)lane2 + t4);
    }
    const float sum5 = stitch_group_reduce<256>(lane2, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    task1 = ((double)task1 + sum5);
  }
  for (int it6 = thread; it6 < 1; it6 += 256) {
    const double t7 = task1;
    b1[task] = t7;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, work);
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest1_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 1000);
  STITCH_GLOBAL(double, b1, p1, 1);
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 1024;
  const int last_row = first_row + 1024 < 1000 ? first_row + 1024 : 1000;
  double task1 = 0x0.0p+0;
  for (int block_first = first_row; block_first < last_row; block_first += 8192) {
    const int block_last = block_first + 8192 < last_row ? block_first + 8192 : last_row;
    float lane2 = 0x0.0p+0f;
    const int whole = block_first + (block_last - block_first) / 2 * 2;
    for (int r_first = block_first + thread * 2; r_first < whole; r_first += 512) {
      STITCH_LOAD_NEIGHBOURS(float, 2, t3_vector, b0, r_first, aligned);
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int r = r_first + element;
        const float t3 = t3_vector.value[element];
        const float t4 = (t3 * t3);
        lane2 = ((float)lane2 + t4);
      }
    }
    for (int r = whole + thread; r < block_last; r += 256) {
      const float t3 = b0[r];
      const float t4 = (t3 * t3);
      lane2 = ((float)lane2 + t4);
    }
    const float sum5 = stitch_group_reduce<256>(lane2, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    task1 = ((double)task1 + sum5);
  }
  for (int it6 = thread; it6 < 1; it6 += 256) {
    const double t7 = task1;
    b1[0] = t7;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, const int work) {
  const bool aligned = ((unsigned long long)p0 % 8 == 0);
  if (aligned) stitch_kernel_nest1_vectors<true>(p0, p1, work);
  else stitch_kernel_nest1_vectors<false>(p0, p1, work);
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest2_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(double, b0, p0, 88);
  STITCH_GLOBAL(float, b1, p1, 1);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    double total = 0x0.0p+0;
    for (int t_first = thread * 2; t_first < 88; t_first += 64) {
      STITCH_LOAD_NEIGHBOURS(double, 2, part_vector, b0, t_first, aligned);
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int t = t_first + element;
        const double part = part_vector.value[element];
        total = ((double)total + part);
      }
    }
    const double sum = stitch_group_reduce<32>(total, [](const double a, const double b) { return (double)((a + b)); }, reduce_shared);
    const float rounded = (float)sum;
    if (thread == 0) b1[0] = rounded;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest2(void* p0, void* p1, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0);
  if (aligned) stitch_kernel_nest2_vectors<true>(p0, p1, work);
  else stitch_kernel_nest2_vectors<false>(p0, p1, work);
}

static __device__ __forceinline__ void stitch_kernel_nest3(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(double, b0, p0, 1);
  STITCH_GLOBAL(float, b1, p1, 1);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x % 1, group = threadIdx.x / 1;
  const int task = work * 32 + group;
  if (task >= 1) return;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    double total = 0x0.0p+0;
    for (int t = thread; t < 1; t += 1) {
      const double part = b0[0];
      total = ((double)total + part);
    }
    const double sum = total;
    const float rounded = (float)sum;
    b1[0] = rounded;
  }
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest4_vectors(void* p0, void* p1, void* p2, void* p3, const int first_row, const int last_row) {
  STITCH_GLOBAL_CONST(float, b0, p0, last_row);
  STITCH_GLOBAL(float, b1, p1, 1);
  STITCH_GLOBAL(float, b2, p2, 1);
  STITCH_GLOBAL(float, b3, p3, last_row);
  const int thread = threadIdx.x;
  const float t2 = b1[0];
  const float t3 = b2[0];
  const float t4 = (t2 + t3);
  const float t5 = (t4 + 0x1.0000000000000p+0f);
  const float t6 = (1 / __builtin_sqrtf(t5));
  const float t7 = stitch_min(t6, 0x1.0000000000000p+0f);
  const int whole = aligned ? first_row + (last_row - first_row) / 4 * 4 : first_row;
  #pragma unroll 1
  for (int r_first = first_row + thread * 4; r_first < whole; r_first += 1024) {
    STITCH_LOAD_NEIGHBOURS(float, 4, t1_vector, b0, r_first, true);
    StitchVector<float, 4> stored0;
    #pragma unroll
    for (int element = 0; element < 4; ++element) {
      const int r = r_first + element;
      const float t1 = t1_vector.value[element];
      const float t8 = (t1 * t7);
      stored0.value[element] = t8;
    }
    STITCH_STORE_NEIGHBOURS(float, 4, b3, r_first, stored0, true);
  }
  for (int r = whole + thread; r < last_row; r += 256) {
    const float t1 = b0[r];
    const float t8 = (t1 * t7);
    b3[r] = t8;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest4(void* p0, void* p1, void* p2, void* p3, const int first_row, const int last_row) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p3 % 16 == 0);
  if (aligned) stitch_kernel_nest4_vectors<true>(p0, p1, p2, p3, first_row, last_row);
  else stitch_kernel_nest4_vectors<false>(p0, p1, p2, p3, first_row, last_row);
}

static __constant__ const struct { int start, rows; int tensors[4]; } stitch_kernel_table0[] = {
  {0, 90000, {0, -1, -1, 2}},
  {90048, 1000, {1, -1, -1, 3}},
};

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 89; work += gridDim.x) {
    if (work < 88) {
      stitch_kernel_nest0(tensors.p[0], (char*)tensors.p[4] + 0, work);
    }
    else {
      stitch_kernel_nest1(tensors.p[1], (char*)tensors.p[4] + 704, work - 88);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 2; work += gridDim.x) {
    if (work < 1) {
      stitch_kernel_nest2((char*)tensors.p[4] + 0, (char*)tensors.p[4] + 768, work);
    }
    else {
      stitch_kernel_nest3((char*)tensors.p[4] + 704, (char*)tensors.p[4] + 832, work - 1);
    }
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 89; work += gridDim.x) {
    {
      const int task = work;
      const int begin = task * 1024;
      const int end = begin + 1024;
      int one = 0, above = 2;
      while (above - one > 1) {
        const int middle = (one + above) / 2;
        if (stitch_kernel_table0[middle].start <= begin) one = middle;
        else above = middle;
      }
      for (; one < 2 && stitch_kernel_table0[one].start < end; ++one) {
        const int start = stitch_kernel_table0[one].start, rows = stitch_kernel_table0[one].rows;
        const int from = begin > start ? begin - start : 0;
        const int to = end - start < rows ? end - start : rows;
        if (from < to) stitch_kernel_nest4(tensors.p[stitch_kernel_table0[one].tensors[0]], (char*)tensors.p[4] + 768, (char*)tensors.p[4] + 832, tensors.p[stitch_kernel_table0[one].tensors[3]], from, to);
      }
    }
  }
}
