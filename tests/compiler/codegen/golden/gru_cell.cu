// graph gru_cell {
//   %0 = f32[64,36] parameter(), number=0
//   %1 = f32[64,36] parameter(), number=1
//   %2 = f32[72,72] parameter(), number=2
//   %3 = f32[72,36] parameter(), number=3
//   %4 = f32[72] parameter(), number=4
//   %5 = f32[64,72] concatenate(%0, %1), dimension=1
//   %6 = f32[64,72] dot(%5, %2)
//   %7 = f32[64,72] broadcast(%4), dimensions={1}
//   %8 = f32[64,72] add(%6, %7)
//   %9 = f32[64,72] logistic(%8)
//   %10 = f32[64,36] slice(%9), limit={64,36}, start={0,0}, strides={1,1}
//   %11 = f32[64,36] slice(%9), limit={64,72}, start={0,36}, strides={1,1}
//   %12 = f32[64,36] multiply(%10, %1)
//   %13 = f32[64,72] concatenate(%0, %12), dimension=1
//   %14 = f32[64,36] dot(%13, %3)
//   %15 = f32[64,36] tanh(%14)
//   %16 = f32[64,36] multiply(%11, %1)
//   %17 = f32[64,36] negate(%11)
//   %18 = f32[] constant(), literal={1.0}
//   %19 = f32[64,36] broadcast(%18), dimensions={}
//   %20 = f32[64,36] add(%17, %19)
//   %21 = f32[64,36] multiply(%20, %15)
//   %22 = f32[64,36] add(%16, %21)
//   return %22
// }

// 64 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[7]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 2304);
  STITCH_GLOBAL_CONST(float, b1, p1, 2304);
  STITCH_GLOBAL_CONST(float, b2, p2, 5184);
  STITCH_GLOBAL(float, b3, p3, 4608);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float row1[4];
    for (int i = 0; i < 4; ++i) row1[i] = 0x0.0p+0f;
    for (int k5184_72 = 0; k5184_72 < 72; ++k5184_72) {
      const float t2 = ((((k5184_72) < 36)) ? b0[r * 36 + k5184_72] : (float)0);
      const float t3 = ((((k5184_72) >= 36)) ? b1[r * 36 + k5184_72 - 36] : (float)0);
      const float t4 = ((((k5184_72) < 36)) ? t2 : t3);
      {
        const int k5184_1_first = thread * 4;
        if (k5184_1_first < 72) {
          STITCH_LOAD_NEIGHBOURS(float, 4, t5_vector, b2, k5184_72 * 72 + k5184_1_first, aligned);
          #pragma unroll
          for (int element = 0; element < 4; ++element) {
            const int k5184_1 = k5184_1_first + element;
            const float t5 = t5_vector.value[element];
            const float t6 = (t4 * t5);
            row1[element] = ((float)row1[element] + t6);
          }
        }
      }
    }
    {
      const int it7_first = thread * 4;
      if (it7_first < 72) {
        StitchVector<float, 4> stored0;
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int it7 = it7_first + element;
          const float t8 = row1[element];
          stored0.value[element] = t8;
        }
        STITCH_STORE_NEIGHBOURS(float, 4, b3, r * 72 + it7_first, stored0, aligned);
      }
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, const int work) {
  const bool aligned = ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p3 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, work);
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest1_vectors(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, const int work) {
  STITCH_GLOBAL(float, b0, p0, 2304);
  STITCH_GLOBAL_CONST(float, b1, p1, 2304);
  STITCH_GLOBAL(float, b2, p2, 4608);
  STITCH_GLOBAL_CONST(float, b3, p3, 72);
  STITCH_GLOBAL_CONST(float, b4, p4, 2304);
  STITCH_GLOBAL_CONST(float, b5, p5, 2592);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x % 16, group = threadIdx.x / 16;
  const int task = work * 2 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float row1[4];
    for (int i = 0; i < 4; ++i) row1[i] = 0x0.0p+0f;
    for (int k2592_36 = 0; k2592_36 < 72; ++k2592_36) {
      const float t2 = ((((k2592_36) < 36)) ? b1[r * 36 + k2592_36] : (float)0);
      const float t3 = ((((k2592_36) >= 36)) ? b2[r * 72 + k2592_36 - 36] : (float)0);
      const float t4 = ((((k2592_36) >= 36)) ? b3[k2592_36 - 36] : (float)0);
      const float t5 = (t3 + t4);
      const float t6 = stitch_logistic(t5);
      const float t7 = ((((k2592_36) >= 36)) ? b4[r * 36 + k2592_36 - 36] : (float)0);
      const float t8 = (t6 * t7);
      const float t9 = ((((k2592_36) < 36)) ? t2 : t8);
      {
        const int k2592_1_first = thread * 4;
        if (k2592_1_first < 36) {
          STITCH_LOAD_NEIGHBOURS(float, 4, t10_vector, b5, k2592_36 * 36 + k2592_1_first, aligned);
          #pragma unroll
          for (int element = 0; element < 4; ++element) {
            const int k2592_1 = k2592_1_first + element;
            const float t10 = t10_vector.value[element];
            const float t11 = (t9 * t10);
            row1[element] = ((float)row1[element] + t11);
          }
        }
      }
    }
    {
      const int k36_1_first = thread * 4;
      if (k36_1_first < 36) {
        STITCH_LOAD_NEIGHBOURS(float, 4, t12_vector, b2, r * 72 + k36_1_first + 36, aligned);
        STITCH_LOAD_NEIGHBOURS(float, 4, t13_vector, b3, k36_1_first + 36, aligned);
        STITCH_LOAD_NEIGHBOURS(float, 4, t16_vector, b4, r * 36 + k36_1_first, aligned);
        StitchVector<float, 4> stored0;
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int k36_1 = k36_1_first + element;
          const float t12 = t12_vector.value[element];
          const float t13 = t13_vector.value[element];
          const float t14 = (t12 + t13);
          const float t15 = stitch_logistic(t14);
          const float t16 = t16_vector.value[element];
          const float t17 = (t15 * t16);
          const float t18 = (-(t15));
          const float t19 = (t18 + 0x1.0000000000000p+0f);
          const float t20 = row1[element];
          const float t21 = stitch_tanh(t20);
          const float t22 = (t19 * t21);
          const float t23 = (t17 + t22);
          stored0.value[element] = t23;
        }
        STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 36 + k36_1_first, stored0, aligned);
      }
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p3 % 16 == 0) & ((unsigned long long)p4 % 16 == 0) & ((unsigned long long)p5 % 16 == 0);
  if (aligned) stitch_kernel_nest1_vectors<true>(p0, p1, p2, p3, p4, p5, work);
  else stitch_kernel_nest1_vectors<false>(p0, p1, p2, p3, p4, p5, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 64; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], tensors.p[2], (char*)tensors.p[6] + 0, work);
    }
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 32; work += gridDim.x) {
    {
      stitch_kernel_nest1(tensors.p[5], tensors.p[0], (char*)tensors.p[6] + 0, tensors.p[4], tensors.p[1], tensors.p[3], work);
    }
  }
}
