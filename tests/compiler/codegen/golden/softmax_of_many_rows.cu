// graph softmax {
//   %0 = f32[65536,128] parameter(), number=0
//   %1 = f32[65536] reduce(%0), dimensions={1}, kind=max
//   %2 = f32[65536,128] broadcast(%1), dimensions={0}
//   %3 = f32[65536,128] subtract(%0, %2)
//   %4 = f32[65536,128] exp(%3)
//   %5 = f32[65536] reduce(%4), dimensions={1}, kind=sum
//   %6 = f32[65536,128] broadcast(%5), dimensions={0}
//   %7 = f32[65536,128] divide(%4, %6)
//   return %7
// }

// 2048 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 8388608);
  STITCH_GLOBAL_CONST(float, b1, p1, 8388608);
  const int thread = threadIdx.x % 8, group = threadIdx.x / 8;
  const int reduce_shared = 0;
  const int task = work * 32 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float tile1[16];
    float lane2 = -__builtin_inff();
    float kept1[16];
    #pragma unroll
    for (int k128_1_turn = 0; k128_1_turn < 4; ++k128_1_turn) {
      const int k128_1_first = (thread + k128_1_turn * 8) * 4;
      STITCH_LOAD_NEIGHBOURS(float, 4, t3_vector, b1, r * 128 + k128_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k128_1 = k128_1_first + element;
        const float t3 = t3_vector.value[element];
        kept1[k128_1_turn * 4 + element] = t3;
        lane2 = stitch_max((float)lane2, t3);
      }
    }
    const float sum4 = stitch_group_reduce<8>(lane2, [](const float a, const float b) { return (float)(stitch_max(a, b)); }, reduce_shared);
    float lane5 = 0x0.0p+0f;
    #pragma unroll
    for (int k128_1_turn = 0; k128_1_turn < 4; ++k128_1_turn) {
      const int k128_1_first = (thread + k128_1_turn * 8) * 4;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k128_1 = k128_1_first + element;
        const float t6 = kept1[k128_1_turn * 4 + element];
        const float t7 = (t6 - sum4);
        const float t8 = stitch_exp(t7);
        tile1[k128_1_turn * 4 + element] = t8;
        lane5 = ((float)lane5 + t8);
      }
    }
    const float sum9 = stitch_group_reduce<8>(lane5, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    #pragma unroll
    for (int k128_1_turn = 0; k128_1_turn < 4; ++k128_1_turn) {
      const int k128_1_first = (thread + k128_1_turn * 8) * 4;
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k128_1 = k128_1_first + element;
        const float t10 = tile1[k128_1_turn * 4 + element];
        const float t11 = (t10 / sum9);
        stored0.value[element] = t11;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 128 + k128_1_first, stored0, aligned);
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
  for (int work = blockIdx.x; work < 2048; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[1], tensors.p[0], work);
    }
  }
}
