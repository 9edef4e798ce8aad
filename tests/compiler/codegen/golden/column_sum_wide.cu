// graph column_sum {
//   %0 = f32[12,30720] parameter(), number=0
//   %1 = f32[30720] reduce(%0), dimensions={0}, kind=sum
//   return %1
// }

// 30 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 368640);
  STITCH_GLOBAL(float, b1, p1, 30720);
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float row1[4];
    for (int i = 0; i < 4; ++i) row1[i] = 0x0.0p+0f;
    for (int k12288_1024 = 0; k12288_1024 < 12; ++k12288_1024) {
      {
        const int k12288_1_first = thread * 4;
        STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b0, k12288_1024 * 30720 + r * 1024 + k12288_1_first, aligned);
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int k12288_1 = k12288_1_first + element;
          const float t2 = t2_vector.value[element];
          row1[element] = ((float)row1[element] + t2);
        }
      }
    }
    {
      const int it3_first = thread * 4;
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int it3 = it3_first + element;
        const float t4 = row1[element];
        stored0.value[element] = t4;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b1, r * 1024 + it3_first, stored0, aligned);
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 30; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
