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

// 147 blocks of 256 threads, 8192 bytes of shared memory

struct stitch_kernel_Tensors { void* p[9]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, void* p6, void* p7, const int work) {
  STITCH_GLOBAL(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(float, b1, p1, 262144);
  STITCH_GLOBAL_CONST(float, b2, p2, 262144);
  STITCH_GLOBAL_CONST(float, b3, p3, 1024);
  STITCH_GLOBAL_CONST(float, b4, p4, 1024);
  STITCH_GLOBAL_CONST(float, b5, p5, 256);
  STITCH_GLOBAL(float, b6, p6, 37632);
  STITCH_GLOBAL(float, b7, p7, 37632);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 7;
  const int last_row = first_row + 7 < 1024 ? first_row + 7 : 1024;
  float task1[8];
  for (int i = 0; i < 8; ++i) task1[i] = 0x0.0p+0f;
  float task2[8];
  for (int i = 0; i < 8; ++i) task2[i] = 0x0.0p+0f;
  for (int r = first_row + group; r < last_row; r += 8) {
    float lane3 = 0x0.0p+0f;
    float lane4 = 0x0.0p+0f;
    const float t7 = b3[r];
    const float t9 = b4[r];
    float kept1[8];
    float kept2[8];
    float kept3[8];
    #pragma unroll
    for (int k256_1_turn = 0; k256_1_turn < 2; ++k256_1_turn) {
      const int k256_1_first = (thread + k256_1_turn * 32) * 4;
      STITCH_LOAD_NEIGHBOURS(float, 4, t5_vector, b1, r * 256 + k256_1_first, aligned);
      STITCH_LOAD_NEIGHBOURS(float, 4, t6_vector, b2, r * 256 + k256_1_first, aligned);
      STITCH_LOAD_NEIGHBOURS(float, 4, t12_vector, b5, k256_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k256_1 = k256_1_first + element;
        const float t5 = t5_vector.value[element];
        kept1[k256_1_turn * 4 + element] = t5;
        const float t6 = t6_vector.value[element];
        kept2[k256_1_turn * 4 + element] = t6;
        const float t8 = (t6 - t7);
        const float t10 = (t8 * t9);
        const float t11 = (t5 * t10);
        const float t12 = t12_vector.value[element];
        kept3[k256_1_turn * 4 + element] = t12;
        const float t13 = (t5 * t12);
        const float t14 = (t13 * t10);
        task1[k256_1_turn * 4 + element] = ((float)task1[k256_1_turn * 4 + element] + t11);
        task2[k256_1_turn * 4 + element] = ((float)task2[k256_1_turn * 4 + element] + t5);
        lane3 = ((float)lane3 + t13);
        lane4 = ((float)lane4 + t14);
      }
    }
    const float sum15 = stitch_group_reduce<32>(lane3, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    const float sum16 = stitch_group_reduce<32>(lane4, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    const float t20 = (sum15 * 0x1.0000000000000p-8f);
    const float t25 = (sum16 * 0x1.0000000000000p-8f);
    #pragma unroll
    for (int k256_1_turn = 0; k256_1_turn < 2; ++k256_1_turn) {
      const int k256_1_first = (thread + k256_1_turn * 32) * 4;
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k256_1 = k256_1_first + element;
        const float t17 = kept1[k256_1_turn * 4 + element];
        const float t18 = kept3[k256_1_turn * 4 + element];
        const float t19 = (t17 * t18);
        const float t21 = (t19 - t20);
        const float t22 = kept2[k256_1_turn * 4 + element];
        const float t23 = (t22 - t7);
        const float t24 = (t23 * t9);
        const float t26 = (t24 * t25);
        const float t27 = (t21 - t26);
        const float t28 = (t27 * t9);
        stored0.value[element] = t28;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 256 + k256_1_first, stored0, aligned);
    }
  }
  STITCH_SHARED(float, task1_all, 0, 1024);
  STITCH_SHARED(float, task2_all, 4096, 1024);
  for (int distance = 4; distance > 0; distance /= 2) {
    if (group >= distance && group < 2 * distance) {
      #pragma unroll
      for (int turn = 0; turn < 8; ++turn) {
        const int place = thread + turn * 32;
        task1_all[(group - distance) * 256 + place] = task1[turn];
      }
      #pragma unroll
      for (int turn = 0; turn < 8; ++turn) {
        const int place = thread + turn * 32;
        task2_all[(group - distance) * 256 + place] = task2[turn];
      }
    }
    __syncthreads();
    if (group < distance) {
      #pragma unroll
      for (int turn = 0; turn < 8; ++turn) {
        const int place = thread + turn * 32;
        task1[turn] = ((float)task1[turn] + (float)task1_all[group * 256 + place]);
      }
      #pragma unroll
      for (int turn = 0; turn < 8; ++turn) {
        const int place = thread + turn * 32;
        task2[turn] = ((float)task2[turn] + (float)task2_all[group * 256 + place]);
      }
    }
    __syncthreads();
  }
  if (group == 0) {
    #pragma unroll
    for (int it29_turn = 0; it29_turn < 2; ++it29_turn) {
      const int it29_first = (thread + it29_turn * 32) * 4;
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int it29 = it29_first + element;
        const float t30 = task1[it29_turn * 4 + element];
        stored0.value[element] = t30;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b6, task * 256 + it29_first, stored0, aligned);
    }
    #pragma unroll
    for (int it31_turn = 0; it31_turn < 2; ++it31_turn) {
      const int it31_first = (thread + it31_turn * 32) * 4;
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int it31 = it31_first + element;
        const float t32 = task2[it31_turn * 4 + element];
        stored0.value[element] = t32;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b7, task * 256 + it31_first, stored0, aligned);
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, void* p6, void* p7, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p5 % 16 == 0) & ((unsigned long long)p6 % 16 == 0) & ((unsigned long long)p7 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, p4, p5, p6, p7, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, p4, p5, p6, p7, work);
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 37632);
  STITCH_GLOBAL(float, b1, p1, 256);
  const int thread = threadIdx.x % 8, group = threadIdx.x / 8;
  const int task = work;
  const int first_row = task * 147;
  const int last_row = first_row + 147;
  float total[1];
  for (int i = 0; i < 1; ++i) total[i] = 0x0.0p+0f;
  for (int r = first_row + group; r < last_row; r += 32) {
    {
      const int c = thread;
      const float part = b0[r * 256 + c - task * 37624];
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

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 147; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[5], tensors.p[1], tensors.p[0], tensors.p[3], tensors.p[4], tensors.p[2], (char*)tensors.p[8] + 0, (char*)tensors.p[8] + 150528, work);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 64; work += gridDim.x) {
    {
      void *tensor0, *tensor1;
      long long before;
      if (work < 32) { tensor0 = (char*)tensors.p[8] + 0; tensor1 = tensors.p[6]; before = 0; }
      else { tensor0 = (char*)tensors.p[8] + 150528; tensor1 = tensors.p[7]; before = 32; }
      stitch_kernel_nest1(tensor0, tensor1, work - before);
    }
    __syncthreads();
  }
}
