// graph matrix_transpose {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[1024] parameter(), number=2
//   %3 = f32[1024,256] broadcast(%1), dimensions={1}
//   %4 = f32[1024,256] add(%0, %3)
//   %5 = f32[256,1024] transpose(%4), permutation={1,0}
//   %6 = f32[256,1024] broadcast(%2), dimensions={1}
//   %7 = f32[256,1024] multiply(%5, %6)
//   return %7
// }

// 16 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[4]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, const long long work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(float, b1, p1, 256);
  STITCH_GLOBAL_CONST(float, b2, p2, 1024);
  STITCH_GLOBAL(float, b3, p3, 262144);
  const int thread = threadIdx.x % 16, group = threadIdx.x / 16;
  const long long task = work * 16 + group;
  if (task >= 256) return;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 256 ? first_row + 1 : 256;
  for (long long block_first = first_row; block_first < last_row; block_first += 16) {
    const long long block_last = block_first + 16 < last_row ? block_first + 16 : last_row;
    for (int k1024_16 = 0; k1024_16 < 64; ++k1024_16) {
      for (long long r = block_first; r < block_last; ++r) {
        const float t2 = b1[r];
        for (int k1024_1 = thread; k1024_1 < 16; k1024_1 += 16) {
          const float t1 = b0[k1024_16 * 4096 + k1024_1 * 256 + r];
          const float t3 = (t1 + t2);
          const float t4 = b2[k1024_16 * 16 + k1024_1];
          const float t5 = (t3 * t4);
          b3[r * 1024 + k1024_16 * 16 + k1024_1] = t5;
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (long long work = blockIdx.x; work < 16; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], tensors.p[2], tensors.p[3], work);
    }
  }
}
