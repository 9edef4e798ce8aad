// graph max_pool {
//   %0 = f32[8,56,56,3] parameter(), number=0
//   %1 = f32[] constant(), literal={-inf}
//   %2 = f32[8,28,28,3] reduce_window(%0, %1), kind=max, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=3, stride=2, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

// 294 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 75264);
  STITCH_GLOBAL(float, b1, p1, 18816);
  const int thread = threadIdx.x % 4, group = threadIdx.x / 4;
  const int reduce_shared = 0;
  const int task = work * 64 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float lane1 = -__builtin_inff();
    for (int k9_3 = thread; k9_3 < 3; k9_3 += 4) {
      const float t2 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0) & (((r / 3 % 28) * 2 - 1) >= 0)) ? b0[(r / 84) * 336 + k9_3 * 168 + (r / 3 % 28) * 6 + (r % 3) - 171] : (float)0);
      const float t3 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0) & (((r / 3 % 28) * 2 - 1) >= 0)) ? t2 : -__builtin_inff());
      const float t4 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0)) ? b0[(r / 84) * 336 + k9_3 * 168 + (r / 3 % 28) * 6 + (r % 3) - 168] : (float)0);
      const float t5 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0)) ? t4 : -__builtin_inff());
      const float t6 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0)) ? b0[(r / 84) * 336 + k9_3 * 168 + (r / 3 % 28) * 6 + (r % 3) - 165] : (float)0);
      const float t7 = (((((r / 84 % 28) * 2 + k9_3 - 1) >= 0)) ? t6 : -__builtin_inff());
      const float t8 = stitch_max(t3, t5);
      const float t9 = stitch_max(t8, t7);
      lane1 = stitch_max((float)lane1, t9);
    }
    const float sum10 = stitch_group_reduce<4>(lane1, [](const float a, const float b) { return (float)(stitch_max(a, b)); }, reduce_shared);
    const float t11 = stitch_max(sum10, -__builtin_inff());
    if (thread == 0) b1[r] = t11;
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 294; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
