// graph embedding_gradient {
//   %0 = s32[64] parameter(), number=0
//   %1 = f32[64,256] parameter(), number=1
//   %2 = f32[] constant(), literal={0.0}
//   %3 = f32[1000,256] broadcast(%2), dimensions={}
//   %4 = f32[] constant(), literal={0.5}
//   %5 = f32[64,256] broadcast(%4), dimensions={}
//   %6 = f32[64,256] multiply(%1, %5)
//   %7 = f32[1000,256] scatter(%3, %0, %6), kind=sum, scatter=GatherDimensions(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=())
//   return %7
// }

// 250 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[3]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, const long long work) {
  STITCH_GLOBAL(float, b0, p0, 256000);
  const int thread = threadIdx.x;
  const long long task = work;
  const long long first_row = task * 1024;
  const long long last_row = first_row + 1024 < 256000 ? first_row + 1024 : 256000;
  for (long long r = first_row + thread; r < last_row; r += 256) {
    b0[r] = 0x0.0p+0f;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, void* p2, const long long work) {
  STITCH_GLOBAL_CONST(int, b0, p0, 64);
  STITCH_GLOBAL_CONST(float, b1, p1, 16384);
  STITCH_GLOBAL(float, b2, p2, 256000);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const long long task = work * 8 + group;
  if (task >= 1) return;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 1 ? first_row + 1 : 1;
  for (long long r = first_row; r < last_row; ++r) {
    for (int b = 0; b < 64; ++b) {
      const int t1 = b0[b];
      const long long start_5d41e41c38c7 = stitch_index(t1);
      if ((((start_5d41e41c38c7) >= 0) & ((start_5d41e41c38c7) < 1000))) {
        for (int w = thread; w < 256; w += 32) {
          const float t2 = b1[b * 256 + w];
          const float t3 = (t2 * 0x1.0000000000000p-1f);
          b2[start_5d41e41c38c7 * 256 + (long long)w] = ((float)b2[start_5d41e41c38c7 * 256 + (long long)w] + t3);
        }
        stitch_group_sync<32>();
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (long long work = blockIdx.x; work < 250; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[2], work);
    }
  }
  stitch_grid_barrier(semaphore);
  for (long long work = blockIdx.x; work < 1; work += gridDim.x) {
    {
      stitch_kernel_nest1(tensors.p[0], tensors.p[1], tensors.p[2], work);
    }
  }
}
