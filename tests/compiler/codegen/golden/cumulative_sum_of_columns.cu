// graph sum_f32_100x64_0 {
//   %0 = f32[100,64] parameter(), number=0
//   %1 = f32[] constant(), literal={0.0}
//   %2 = f32[100,64] reduce_window(%0, %1), kind=sum, window={WindowDimension(size=100, stride=1, padding_low=99, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1)}
//   return %2
// }

// 2 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 6400);
  STITCH_GLOBAL(float, b1, p1, 6400);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float total[1];
    {
      const int v = thread;
      total[0] = 0x0.0p+0f;
    }
    for (int k = 0; k < 100; ++k) {
      {
        const int w = thread;
        const float t1 = b0[k * 64 + r * 32 + w];
        total[0] = (float)(((float)total[0] + (float)t1));
        const float scan2 = (float)total[0];
        b1[k * 64 + r * 32 + w] = scan2;
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 2; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
