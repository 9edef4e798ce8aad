// graph embedding {
//   %0 = f32[8000,256] parameter(), number=0
//   %1 = s32[1024] parameter(), number=1
//   %2 = f32[1024,256] parameter(), number=2
//   %3 = f32[1024,256] gather(%0, %1), gather=GatherDimensions(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=(1, 256))
//   %4 = f32[1024,256] add(%3, %2)
//   return %4
// }

// 128 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[4]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, const int work) {
  STITCH_GLOBAL(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(int, b1, p1, 1024);
  STITCH_GLOBAL_CONST(float, b2, p2, 2048000);
  STITCH_GLOBAL(float, b3, p3, 262144);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work * 8 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    const int t1 = b1[r];
    const int start_7841cb0fd6dc = stitch_clamp_to_int(t1, 7999);
    const int whole = aligned ? 256 : 0;
    for (int k256_1_first = thread * 4; k256_1_first < whole; k256_1_first += 256) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b2, start_7841cb0fd6dc * 256 + k256_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t3_vector, b3, r * 256 + k256_1_first, true);
      const int k256_1_first1 = k256_1_first + 128;
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector1, b2, start_7841cb0fd6dc * 256 + k256_1_first1, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t3_vector1, b3, r * 256 + k256_1_first1, true);
      {
        StitchVector<float, 4> stored0;
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int k256_1 = k256_1_first + element;
          const float t2 = t2_vector.value[element];
          const float t3 = t3_vector.value[element];
          const float t4 = (t2 + t3);
          stored0.value[element] = t4;
        }
        STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 256 + k256_1_first, stored0, true);
      }
      {
        StitchVector<float, 4> stored0;
        #pragma unroll
        for (int element = 0; element < 4; ++element) {
          const int k256_1 = k256_1_first1 + element;
          const float t2 = t2_vector1.value[element];
          const float t3 = t3_vector1.value[element];
          const float t4 = (t2 + t3);
          stored0.value[element] = t4;
        }
        STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 256 + k256_1_first1, stored0, true);
      }
    }
    for (int k256_1 = whole + thread; k256_1 < 256; k256_1 += 32) {
      const float t2 = b2[start_7841cb0fd6dc * 256 + k256_1];
      const float t3 = b3[r * 256 + k256_1];
      const float t4 = (t2 + t3);
      b0[r * 256 + k256_1] = t4;
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p3 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 128; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[3], tensors.p[1], tensors.p[0], tensors.p[2], work);
    }
  }
}
