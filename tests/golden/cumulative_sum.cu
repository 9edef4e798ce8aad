// graph sum_f32_64x1000_1_exclusive {
//   %0 = f32[64,1000] parameter(), number=0
//   %1 = f32[] constant(), literal={0.0}
//   %2 = f32[64,1001] reduce_window(%0, %1), kind=sum, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=1000, stride=1, padding_low=1000, padding_high=0, window_dilation=1, base_dilation=1)}
//   %3 = f32[64,1000] slice(%2), limit={64,1000}, start={0,0}, strides={1,1}
//   return %3
// }

// 320 blocks of 256 threads, 256 bytes of shared memory

struct stitch_kernel_Tensors { void* p[3]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const long long work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 64000);
  STITCH_GLOBAL(float, b1, p1, 64064);
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const long long task = work;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 64064 ? first_row + 1 : 64064;
  for (long long r = first_row; r < last_row; ++r) {
    float lane1 = 0x0.0p+0f;
    for (int k1000_1 = thread; k1000_1 < 1000; k1000_1 += 256) {
      const float t2 = (((((r % 1001) + k1000_1 - 1000) >= 0)) ? b0[(r / 1001) * 1000 + (r % 1001) + k1000_1 - 1000] : (float)0);
      const float t3 = (((((r % 1001) + k1000_1 - 1000) >= 0)) ? t2 : 0x0.0p+0f);
      lane1 = ((float)lane1 + t3);
    }
    const float sum4 = stitch_group_reduce<256>(lane1, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    const float t5 = (sum4 + 0x0.0p+0f);
    if (thread == 0) b1[r] = t5;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, const long long work) {
  STITCH_GLOBAL(float, b0, p0, 64000);
  STITCH_GLOBAL(float, b1, p1, 64064);
  const int thread = threadIdx.x;
  const long long task = work;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 64 ? first_row + 1 : 64;
  for (long long r = first_row; r < last_row; ++r) {
    for (int k1000_1 = thread; k1000_1 < 1000; k1000_1 += 256) {
      const float t1 = b1[r * 1001 + k1000_1];
      b0[r * 1000 + k1000_1] = t1;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (long long work = blockIdx.x; work < 64064; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], (char*)tensors.p[2] + 0, work);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (long long work = blockIdx.x; work < 64; work += gridDim.x) {
    {
      stitch_kernel_nest1(tensors.p[1], (char*)tensors.p[2] + 0, work);
    }
  }
}
