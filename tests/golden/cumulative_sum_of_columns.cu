// graph sum_f32_100x64_0 {
//   %0 = f32[100,64] parameter(), number=0
//   %1 = f32[] constant(), literal={0.0}
//   %2 = f32[100,64] reduce_window(%0, %1), kind=sum, window={WindowDimension(size=100, stride=1, padding_low=99, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

// 13 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const long long work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 6400);
  STITCH_GLOBAL(float, b1, p1, 6400);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const long long task = work * 8 + group;
  if (task >= 100) return;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 100 ? first_row + 1 : 100;
  for (long long r = first_row; r < last_row; ++r) {
    float row1[2];
    for (int i = 0; i < 2; ++i) row1[i] = 0x0.0p+0f;
    for (int k6400_64 = 0; k6400_64 < 100; ++k6400_64) {
      #pragma unroll
      for (int k6400_1_turn = 0; k6400_1_turn < 2; ++k6400_1_turn) {
        const int k6400_1 = thread + k6400_1_turn * 32;
        const float t2 = ((((k6400_64 + r - 99) >= 0)) ? b0[k6400_64 * 64 + r * 64 + k6400_1 - 6336] : (float)0);
        const float t3 = ((((k6400_64 + r - 99) >= 0)) ? t2 : 0x0.0p+0f);
        row1[k6400_1_turn] = ((float)row1[k6400_1_turn] + t3);
      }
    }
    #pragma unroll
    for (int it4_turn = 0; it4_turn < 2; ++it4_turn) {
      const int it4 = thread + it4_turn * 32;
      row1[it4_turn] = ((float)row1[it4_turn] + 0x0.0p+0f);
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
  for (long long work = blockIdx.x; work < 13; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
