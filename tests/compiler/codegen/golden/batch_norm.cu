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

// 320 blocks of 256 threads, 1024 bytes of shared memory

struct stitch_kernel_Tensors { void* p[6]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 401408);
  STITCH_GLOBAL(float, b1, p1, 10048);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work;
  const int first_row = task * 40;
  const int last_row = first_row + 40 < 6272 ? first_row + 40 : 6272;
  float task1[2];
  for (int i = 0; i < 2; ++i) task1[i] = 0x0.0p+0f;
  for (int r = first_row + group; r < last_row; r += 8) {
    {
      const int k64_1_first = thread * 2;
      STITCH_LOAD_NEIGHBOURS(float, 2, t2_vector, b0, r * 64 + k64_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int k64_1 = k64_1_first + element;
        const float t2 = t2_vector.value[element];
        task1[element] = ((float)task1[element] + t2);
      }
    }
  }
  STITCH_SHARED(float, task1_all, 0, 256);
  for (int distance = 4; distance > 0; distance /= 2) {
    if (group >= distance && group < 2 * distance) {
      #pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int place = thread + turn * 32;
        task1_all[(group - distance) * 64 + place] = task1[turn];
      }
    }
    __syncthreads();
    if (group < distance) {
      #pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int place = thread + turn * 32;
        task1[turn] = ((float)task1[turn] + (float)task1_all[group * 64 + place]);
      }
    }
    __syncthreads();
  }
  if (group == 0) {
    {
      const int it3_first = thread * 2;
      StitchVector<float, 2> stored0;
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int it3 = it3_first + element;
        const float t4 = task1[element];
        stored0.value[element] = t4;
      }
      STITCH_STORE_NEIGHBOURS(float, 2, b1, task * 64 + it3_first, stored0, aligned);
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  const bool aligned = ((unsigned long long)p0 % 8 == 0) & ((unsigned long long)p1 % 8 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, work);
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 10048);
  STITCH_GLOBAL(float, b1, p1, 64);
  const int thread = threadIdx.x % 8, group = threadIdx.x / 8;
  const int task = work;
  const int first_row = task * 157;
  const int last_row = first_row + 157;
  float total[1];
  for (int i = 0; i < 1; ++i) total[i] = 0x0.0p+0f;
  for (int r = first_row + group; r < last_row; r += 32) {
    {
      const int c = thread;
      const float part = b0[r * 64 + c - task * 10040];
      total[0] = ((float)total[0] + part);
    }
  }
  STITCH_SHARED(float, total_all, 0, 128);
  for (int distance = 16; distance > 0; distance /= 2) {
    if (group >= distance && group < 2 * distance) {
      #pragma unroll
      for (int turn = 0; turn < 1; ++turn) {
        const int place = thread + turn * 8;
        total_all[(group - distance) * 8 + place] = total[turn];
      }
    }
    __syncthreads();
    if (group < distance) {
      #pragma unroll
      for (int turn = 0; turn < 1; ++turn) {
        const int place = thread + turn * 8;
        total[turn] = ((float)total[turn] + (float)total_all[group * 8 + place]);
      }
    }
    __syncthreads();
  }
  if (group == 0) {
    {
      const int c = thread;
      const float sum = total[0];
      b1[task * 8 + c] = sum;
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest2(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 64);
  STITCH_GLOBAL(float, b1, p1, 64);
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 256;
  const int last_row = first_row + 256 < 64 ? first_row + 256 : 64;
  for (int r = first_row + thread; r < last_row; r += 256) {
    const float t1 = b0[r];
    const float t2 = (t1 * 0x1.4e5e0a0000000p-13f);
    b1[r] = t2;
  }
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest3_vectors(void* p0, void* p1, void* p2, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 401408);
  STITCH_GLOBAL(float, b1, p1, 64);
  STITCH_GLOBAL(float, b2, p2, 10048);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work;
  const int first_row = task * 40;
  const int last_row = first_row + 40 < 6272 ? first_row + 40 : 6272;
  float task1[2];
  for (int i = 0; i < 2; ++i) task1[i] = 0x0.0p+0f;
  for (int r = first_row + group; r < last_row; r += 8) {
    {
      const int k64_1_first = thread * 2;
      STITCH_LOAD_NEIGHBOURS(float, 2, t2_vector, b0, r * 64 + k64_1_first, aligned);
      STITCH_LOAD_NEIGHBOURS(float, 2, t3_vector, b1, k64_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int k64_1 = k64_1_first + element;
        const float t2 = t2_vector.value[element];
        const float t3 = t3_vector.value[element];
        const float t4 = (t3 * 0x1.4e5e0a0000000p-13f);
        const float t5 = (t2 - t4);
        const float t6 = (t5 * t5);
        task1[element] = ((float)task1[element] + t6);
      }
    }
  }
  STITCH_SHARED(float, task1_all, 0, 256);
  for (int distance = 4; distance > 0; distance /= 2) {
    if (group >= distance && group < 2 * distance) {
      #pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int place = thread + turn * 32;
        task1_all[(group - distance) * 64 + place] = task1[turn];
      }
    }
    __syncthreads();
    if (group < distance) {
      #pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const int place = thread + turn * 32;
        task1[turn] = ((float)task1[turn] + (float)task1_all[group * 64 + place]);
      }
    }
    __syncthreads();
  }
  if (group == 0) {
    {
      const int it7_first = thread * 2;
      StitchVector<float, 2> stored0;
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int it7 = it7_first + element;
        const float t8 = task1[element];
        stored0.value[element] = t8;
      }
      STITCH_STORE_NEIGHBOURS(float, 2, b2, task * 64 + it7_first, stored0, aligned);
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest3(void* p0, void* p1, void* p2, const int work) {
  const bool aligned = ((unsigned long long)p0 % 8 == 0) & ((unsigned long long)p1 % 8 == 0) & ((unsigned long long)p2 % 8 == 0);
  if (aligned) stitch_kernel_nest3_vectors<true>(p0, p1, p2, work);
  else stitch_kernel_nest3_vectors<false>(p0, p1, p2, work);
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest4_vectors(void* p0, void* p1, void* p2, void* p3, void* p4, const int work) {
  STITCH_GLOBAL(float, b0, p0, 401408);
  STITCH_GLOBAL_CONST(float, b1, p1, 401408);
  STITCH_GLOBAL(float, b2, p2, 64);
  STITCH_GLOBAL(float, b3, p3, 64);
  STITCH_GLOBAL_CONST(float, b4, p4, 64);
  const int thread = threadIdx.x % 16, group = threadIdx.x / 16;
  const int task = work * 16 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    const int whole = aligned ? 64 : 0;
    for (int k64_1_first = thread * 4; k64_1_first < whole; k64_1_first += 64) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t1_vector, b1, r * 64 + k64_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b2, k64_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t5_vector, b3, k64_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t9_vector, b4, k64_1_first, true);
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k64_1 = k64_1_first + element;
        const float t1 = t1_vector.value[element];
        const float t2 = t2_vector.value[element];
        const float t3 = (t2 * 0x1.4e5e0a0000000p-13f);
        const float t4 = (t1 - t3);
        const float t5 = t5_vector.value[element];
        const float t6 = (t5 * 0x1.4e5e0a0000000p-13f);
        const float t7 = (t6 + 0x1.0624de0000000p-10f);
        const float t8 = (1 / __builtin_sqrtf(t7));
        const float t9 = t9_vector.value[element];
        const float t10 = (t8 * t9);
        const float t11 = (t4 * t10);
        stored0.value[element] = t11;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 64 + k64_1_first, stored0, true);
    }
    for (int k64_1 = whole + thread; k64_1 < 64; k64_1 += 16) {
      const float t1 = b1[r * 64 + k64_1];
      const float t2 = b2[k64_1];
      const float t3 = (t2 * 0x1.4e5e0a0000000p-13f);
      const float t4 = (t1 - t3);
      const float t5 = b3[k64_1];
      const float t6 = (t5 * 0x1.4e5e0a0000000p-13f);
      const float t7 = (t6 + 0x1.0624de0000000p-10f);
      const float t8 = (1 / __builtin_sqrtf(t7));
      const float t9 = b4[k64_1];
      const float t10 = (t8 * t9);
      const float t11 = (t4 * t10);
      b0[r * 64 + k64_1] = t11;
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest4(void* p0, void* p1, void* p2, void* p3, void* p4, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p3 % 16 == 0) & ((unsigned long long)p4 % 16 == 0);
  if (aligned) stitch_kernel_nest4_vectors<true>(p0, p1, p2, p3, p4, work);
  else stitch_kernel_nest4_vectors<false>(p0, p1, p2, p3, p4, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 157; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], (char*)tensors.p[5] + 0, work);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 8; work += gridDim.x) {
    {
      stitch_kernel_nest1((char*)tensors.p[5] + 0, (char*)tensors.p[5] + 40192, work);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 158; work += gridDim.x) {
    if (work < 1) {
      stitch_kernel_nest2((char*)tensors.p[5] + 40192, tensors.p[3], work);
    }
    else {
      stitch_kernel_nest3(tensors.p[0], (char*)tensors.p[5] + 40192, (char*)tensors.p[5] + 0, work - 1);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 8; work += gridDim.x) {
    {
      stitch_kernel_nest1((char*)tensors.p[5] + 0, (char*)tensors.p[5] + 40448, work);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 393; work += gridDim.x) {
    if (work < 1) {
      stitch_kernel_nest2((char*)tensors.p[5] + 40448, tensors.p[4], work);
    }
    else {
      stitch_kernel_nest4(tensors.p[2], tensors.p[0], (char*)tensors.p[5] + 40192, (char*)tensors.p[5] + 40448, tensors.p[1], work - 1);
    }
  }
}
