// graph bias_residual {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[1024,256] parameter(), number=2
//   %3 = f32[1024,256] broadcast(%1), dimensions={1}
//   %4 = f32[1024,256] add(%0, %3)
//   %5 = f32[1024,256] add(%4, %2)
//   return %5
// }

// 128 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[4]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, const int work) {
  STITCH_GLOBAL(float, b0, p0, 262144);
  STITCH_GLOBAL(float, b1, p1, 262144);
  STITCH_GLOBAL_CONST(float, b2, p2, 256);
  STITCH_GLOBAL(float, b3, p3, 262144);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work * 8 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    const int whole = aligned ? 256 : 0;
    #pragma unroll 1
    for (int k256_1_first = thread * 4; k256_1_first < whole; k256_1_first += 128) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t1_vector, b1, r * 256 + k256_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b2, k256_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t4_vector, b3, r * 256 + k256_1_first, true);
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k256_1 = k256_1_first + element;
        const float t1 = t1_vector.value[element];
        const float t2 = t2_vector.value[element];
        const float t3 = (t1 + t2);
        const float t4 = t4_vector.value[element];
        const float t5 = (t3 + t4);
        stored0.value[element] = t5;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 256 + k256_1_first, stored0, true);
    }
    for (int k256_1 = whole + thread; k256_1 < 256; k256_1 += 32) {
      const float t1 = b1[r * 256 + k256_1];
      const float t2 = b2[k256_1];
      const float t3 = (t1 + t2);
      const float t4 = b3[r * 256 + k256_1];
      const float t5 = (t3 + t4);
      b0[r * 256 + k256_1] = t5;
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p3 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 128; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[3], tensors.p[0], tensors.p[1], tensors.p[2], work);
    }
  }
}
