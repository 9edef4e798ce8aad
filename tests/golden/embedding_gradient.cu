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

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, const int work) {
  STITCH_GLOBAL(float, b0, p0, 256000);
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 1024;
  const int last_row = first_row + 1024;
  const int whole = aligned ? first_row + (last_row - first_row) / 4 * 4 : first_row;
  #pragma unroll 1
  for (int r_first = first_row + thread * 4; r_first < whole; r_first += 1024) {
    StitchVector<float, 4> stored0;
    #pragma unroll
    for (int element = 0; element < 4; ++element) {
      const int r = r_first + element;
      stored0.value[element] = 0x0.0p+0f;
    }
    STITCH_STORE_NEIGHBOURS(float, 4, b0, r_first, stored0, true);
  }
  for (int r = whole + thread; r < last_row; r += 256) {
    b0[r] = 0x0.0p+0f;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, work);
  else stitch_kernel_nest0_vectors<false>(p0, work);
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest1_vectors(void* p0, void* p1, void* p2, const long long work) {
  STITCH_GLOBAL_CONST(int, b0, p0, 64);
  STITCH_GLOBAL_CONST(float, b1, p1, 16384);
  STITCH_GLOBAL(float, b2, p2, 256000);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int reduce_shared = 0;
  const long long task = work * 8 + group;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1;
  for (long long r = first_row; r < last_row; ++r) {
    const int t1 = b0[r];
    const long long start_e80bf0c1765b = stitch_index(t1);
    int firsts = (int)2147483647ll;
    int sames = (int)0ll;
    for (int o_first = thread * 2; o_first < 64; o_first += 64) {
      STITCH_LOAD_NEIGHBOURS(int, 2, t2_vector, b0, o_first, aligned);
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int o = o_first + element;
        const int t2 = t2_vector.value[element];
        const long long start_ab368b4d5e38 = stitch_index(t2);
        const int t3 = (int)(o);
        const int t4 = ((((start_ab368b4d5e38 - start_e80bf0c1765b) >= 0) & ((start_ab368b4d5e38 - start_e80bf0c1765b) < 1)) ? t3 : 64);
        firsts = ((int)firsts < t4 ? (int)firsts : t4);
        const int t5 = ((((start_ab368b4d5e38 - start_e80bf0c1765b) >= 0) & ((start_ab368b4d5e38 - start_e80bf0c1765b) < 1)) ? 1 : 0);
        sames = (int)((unsigned int)(int)sames + (unsigned int)t5);
      }
    }
    const int firsts_all = stitch_group_reduce<32>(firsts, [](const int a, const int b) { return (int)((a < b ? a : b)); }, reduce_shared);
    const long long firsts_found = stitch_index(firsts_all);
    const int sames_all = stitch_group_reduce<32>(sames, [](const int a, const int b) { return (int)((int)((unsigned int)a + (unsigned int)b)); }, reduce_shared);
    const long long sames_found = stitch_index(sames_all);
    if ((((start_e80bf0c1765b) >= 0) & ((start_e80bf0c1765b) < 1000) & ((firsts_found - r) >= 0) & ((firsts_found - r) < 1))) {
      if ((((sames_found) >= 1) & ((sames_found) < 2))) {
        for (int w = thread; w < 256; w += 32) {
          const float t6 = b1[r * 256 + w];
          const float t7 = (t6 * 0x1.0000000000000p-1f);
          b2[start_e80bf0c1765b * 256 + (long long)w] = ((float)b2[start_e80bf0c1765b * 256 + (long long)w] + t7);
        }
        stitch_group_sync<32>();
      }
      if ((((sames_found) >= 2))) {
        for (int p = 0; p < 64; ++p) {
          const int t8 = b0[p];
          const long long start_16a093c24e39 = stitch_index(t8);
          if ((((start_16a093c24e39 - start_e80bf0c1765b) >= 0) & ((start_16a093c24e39 - start_e80bf0c1765b) < 1))) {
            for (int w = thread; w < 256; w += 32) {
              const float t9 = b1[p * 256 + w];
              const float t10 = (t9 * 0x1.0000000000000p-1f);
              b2[start_e80bf0c1765b * 256 + (long long)w] = ((float)b2[start_e80bf0c1765b * 256 + (long long)w] + t10);
            }
            stitch_group_sync<32>();
          }
        }
      }
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, void* p2, const long long work) {
  const bool aligned = ((unsigned long long)p0 % 8 == 0);
  if (aligned) stitch_kernel_nest1_vectors<true>(p0, p1, p2, work);
  else stitch_kernel_nest1_vectors<false>(p0, p1, p2, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 250; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[2], work);
    }
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 8; work += gridDim.x) {
    {
      stitch_kernel_nest1(tensors.p[0], tensors.p[1], tensors.p[2], work);
    }
  }
}
