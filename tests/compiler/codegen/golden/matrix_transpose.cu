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

// 256 blocks of 256 threads, 4224 bytes of shared memory

struct stitch_kernel_Tensors { void* p[4]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, const int work) {
  STITCH_GLOBAL_CONST(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(float, b1, p1, 256);
  STITCH_GLOBAL_CONST(float, b2, p2, 1024);
  STITCH_GLOBAL(float, b3, p3, 262144);
  const int thread = threadIdx.x;
  const int group_shared = 0;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    STITCH_SHARED(float, square1, group_shared + 0, 1056);
    #pragma unroll
    for (int x_turn = 0; x_turn < 4; ++x_turn) {
      const int x = thread + x_turn * 256;
      const int t2 = (int)((r / 32) * 32 + (x % 32));
      const long long down = stitch_index(t2);
      const int t3 = (int)((r % 32) * 32 + (x / 32));
      const long long along = stitch_index(t3);
      const float t4 = b0[along * 256 + down];
      square1[(x / 32) * 33 + (x % 32)] = t4;
    }
    stitch_group_sync<256>();
    for (int y = thread; y < 1024; y += 256) {
      const int t5 = (int)((r / 32) * 32 + (y / 32));
      const long long down = stitch_index(t5);
      const int t6 = (int)((r % 32) * 32 + (y % 32));
      const long long along = stitch_index(t6);
      const float t7 = square1[(y % 32) * 33 + (y / 32)];
      const float t8 = b1[down];
      const float t9 = (t7 + t8);
      const float t10 = b2[along];
      const float t11 = (t9 * t10);
      b3[down * 1024 + along] = t11;
    }
    stitch_group_sync<256>();
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 256; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[0], tensors.p[1], tensors.p[2], tensors.p[3], work);
    }
    __syncthreads();
  }
}
