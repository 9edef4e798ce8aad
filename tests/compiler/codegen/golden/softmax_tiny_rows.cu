// graph softmax {
//   %0 = f32[10000,4] parameter(), number=0
//   %1 = f32[10000] reduce(%0), dimensions={1}, kind=max
//   %2 = f32[10000,4] broadcast(%1), dimensions={0}
//   %3 = f32[10000,4] subtract(%0, %2)
//   %4 = f32[10000,4] exp(%3)
//   %5 = f32[10000] reduce(%4), dimensions={1}, kind=sum
//   %6 = f32[10000,4] broadcast(%5), dimensions={0}
//   %7 = f32[10000,4] divide(%4, %6)
//   return %7
// }

// 10 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[2]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 40000);
  STITCH_GLOBAL(float, b1, p1, 40000);
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 1024;
  const int last_row = first_row + 1024 < 10000 ? first_row + 1024 : 10000;
  for (int r = first_row + thread; r < last_row; r += 256) {
    const float t1 = b0[r * 4];
    const float t2 = b0[r * 4 + 1];
    const float t3 = b0[r * 4 + 2];
    const float t4 = b0[r * 4 + 3];
    const float t5 = stitch_max(t1, t2);
    const float t6 = stitch_max(t3, t4);
    const float t7 = stitch_max(t5, t6);
    const float t8 = (t1 - t7);
    const float t9 = stitch_exp(t8);
    const float t10 = (t2 - t7);
    const float t11 = stitch_exp(t10);
    const float t12 = (t3 - t7);
    const float t13 = stitch_exp(t12);
    const float t14 = (t4 - t7);
    const float t15 = stitch_exp(t14);
    const float t16 = (t9 + t11);
    const float t17 = (t13 + t15);
    const float t18 = (t16 + t17);
    const float t19 = (t9 / t18);
    const float t20 = (t11 / t18);
    const float t21 = (t13 / t18);
    const float t22 = (t15 / t18);
    b1[r * 4] = t19;
    b1[r * 4 + 1] = t20;
    b1[r * 4 + 2] = t21;
    b1[r * 4 + 3] = t22;
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 10; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], work);
    }
  }
}
