// graph sum_f32_64x1000_1_exclusive {
//   %0 = f32[64,1000] parameter(), number=0
//   %1 = f32[] constant(), literal={0.0}
//   %2 = f32[64,1001] reduce_window(%0, %1), kind=sum, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=1000, stride=1, padding_low=1000, padding_high=0, window_dilation=1, base_dilation=1)}
//   %3 = f32[64,1000] slice(%2), limit={64,1000}, start={0,0}, strides={1,1}
//   return %3
// }

// 64 blocks of 256 threads, 256 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 64000);
  STITCH_GLOBAL_CONST(float, b1, p1, 64000);
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    double total;
    for (int v = 0; v < 1; ++v) {
      total = 0x0.0p+0f;
      if (thread == 0) b0[r * 1000] = 0x0.0p+0f;
    }
    for (int k_base = 0; k_base < 999; k_base += 256) {
      const int k = k_base + thread;
      double scan2_value = 0x0.0p+0, scan2_all;
      if (k < 999) {
        const float t1 = b1[r * 1000 + k];
        scan2_value = t1;
      }
      const double scan2_here = stitch_group_scan<256>(scan2_value, scan2_all, [](const double a, const double b) { return (double)((a + b)); }, reduce_shared);
      const double scan2_sum = (double)(((double)total + (double)scan2_here));
      total = (double)(((double)total + (double)scan2_all));
      if (k < 999) {
        const float scan2 = (float)scan2_sum;
        b0[r * 1000 + k + 1] = scan2;
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 64; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[1], tensors.p[0], work);
    }
    __syncthreads();
  }
}
