// graph max_pool {
//   %0 = f32[8,56,56,64] parameter(), number=0
//   %1 = f32[] constant(), literal={-inf}
//   %2 = f32[8,28,28,64] reduce_window(%0, %1), kind=max, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

// 784 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 1605632);
  STITCH_GLOBAL(float, b1, p1, 401408);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work * 8 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float row1[2];
    for (int i = 0; i < 2; ++i) row1[i] = -__builtin_inff();
    for (int k576_192 = 0; k576_192 < 3; ++k576_192) {
      for (int k576_64 = 0; k576_64 < 3; ++k576_64) {
        #pragma unroll
        for (int k576_1_turn = 0; k576_1_turn < 2; ++k576_1_turn) {
          const int k576_1 = thread + k576_1_turn * 32;
          const float t2 = (((((r / 28 % 28) * 2 + k576_192 - 1) >= 0) & (((r % 28) * 2 + k576_64 - 1) >= 0)) ? b0[(r / 28) * 7168 + k576_192 * 3584 + (r % 28) * 128 + k576_64 * 64 + k576_1 - 3648] : (float)0);
          const float t3 = (((((r / 28 % 28) * 2 + k576_192 - 1) >= 0) & (((r % 28) * 2 + k576_64 - 1) >= 0)) ? t2 : -__builtin_inff());
          row1[k576_1_turn] = stitch_max((float)row1[k576_1_turn], t3);
        }
      }
    }
    #pragma unroll
    for (int it4_turn = 0; it4_turn < 2; ++it4_turn) {
      const int it4 = thread + it4_turn * 32;
      row1[it4_turn] = stitch_max((float)row1[it4_turn], -__builtin_inff());
    }
    #pragma unroll
    for (int it5_turn = 0; it5_turn < 2; ++it5_turn) {
      const int it5 = thread + it5_turn * 32;
      const float t6 = row1[it5_turn];
      b1[r * 64 + it5] = t6;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 784; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
