// graph column_sum {
//   %0 = f32[12,30720] parameter(), number=0
//   %1 = f32[30720] reduce(%0), dimensions={0}, kind=sum
//   return %1
// }

// 30 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const long long work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 368640);
  STITCH_GLOBAL(float, b1, p1, 30720);
  const int thread = threadIdx.x;
  const long long task = work;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 30 ? first_row + 1 : 30;
  for (long long r = first_row; r < last_row; ++r) {
    float row1[4];
    for (int i = 0; i < 4; ++i) row1[i] = 0x0.0p+0f;
    for (int k12288_1024 = 0; k12288_1024 < 12; ++k12288_1024) {
      #pragma unroll
      for (int k12288_1_turn = 0; k12288_1_turn < 4; ++k12288_1_turn) {
        const int k12288_1 = thread + k12288_1_turn * 256;
        const float t2 = b0[k12288_1024 * 30720 + r * 1024 + k12288_1];
        row1[k12288_1_turn] = ((float)row1[k12288_1_turn] + t2);
      }
    }
    #pragma unroll
    for (int it3_turn = 0; it3_turn < 4; ++it3_turn) {
      const int it3 = thread + it3_turn * 256;
      const float t4 = row1[it3_turn];
      b1[r * 1024 + it3] = t4;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (long long work = blockIdx.x; work < 30; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
