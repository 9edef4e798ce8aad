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
  STITCH_GLOBAL(float, b1, p1, 256000);
  STITCH_GLOBAL_CONST(float, b2, p2, 16384);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x;
  const long long task = work;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1;
  for (long long r = first_row; r < last_row; ++r) {
    const int t1 = b0[r];
    const long long start_e80bf0c1765b = stitch_index(t1);
    if ((((start_e80bf0c1765b) >= 0) & ((start_e80bf0c1765b) < 1000))) {
      int first = 64;
      for (int o_base = 0; o_base < 64; o_base += 64) {
        unsigned o_hits = 0;
        #pragma unroll
        for (int o_turn = 0; o_turn < 2; ++o_turn) {
          const int o_own = o_base + o_turn * 32 + thread;
          const bool o_there = o_own < 64;
          const int o = o_there ? o_own : 63;
          const int t2 = b0[o];
          const long long start_ab368b4d5e38 = stitch_index(t2);
          if (o_there & (((start_ab368b4d5e38 - start_e80bf0c1765b) >= 0) & ((start_ab368b4d5e38 - start_e80bf0c1765b) < 1))) o_hits |= 1u << o_turn;
        }
        if (stitch_ballot(o_hits != 0) == 0) continue;
        int o_turn = 0;
        unsigned o_rest = stitch_ballot(o_hits & 1);
        while (o_rest == 0) o_rest = stitch_ballot(o_hits >> ++o_turn & 1);
        first = o_base + o_turn * 32 + __ffs(o_rest) - 1;
        break;
      }
      if ((((first - r) >= 0) & ((first - r) < 1))) {
        float result[8];
        #pragma unroll
        for (int w_turn = 0; w_turn < 2; ++w_turn) {
          const int w_first = (thread + w_turn * 32) * 4;
          STITCH_LOAD_NEIGHBOURS(float, 4, t3_vector, b1, start_e80bf0c1765b * 256 + (long long)w_first, aligned);
          #pragma unroll
          for (int element = 0; element < 4; ++element) {
            const int w = w_first + element;
            const float t3 = t3_vector.value[element];
            result[w_turn * 4 + element] = t3;
          }
        }
        stitch_group_sync<32>();
        const int p_stop = 64;
        for (int p_base = r; p_base < p_stop; p_base += 64) {
          unsigned p_hits = 0;
          #pragma unroll
          for (int p_turn = 0; p_turn < 2; ++p_turn) {
            const int p_own = p_base + p_turn * 32 + thread;
            const bool p_there = p_own < p_stop;
            const int p = p_there ? p_own : p_stop - 1;
            const int t4 = b0[p];
            const long long start_16a093c24e39 = stitch_index(t4);
            if (p_there & (((start_16a093c24e39 - start_e80bf0c1765b) >= 0) & ((start_16a093c24e39 - start_e80bf0c1765b) < 1))) p_hits |= 1u << p_turn;
          }
          if (stitch_ballot(p_hits != 0) == 0) continue;
          for (int p_turn = 0; p_turn < 2 && p_base + p_turn * 32 < p_stop; ++p_turn) {
            unsigned p_rest = stitch_ballot(p_hits >> p_turn & 1);
            while (p_rest != 0) {
              float update_all[2][8];
              int p_count = 0, p_next = 0;
              #pragma unroll
              for (int p_step = 0; p_step < 2; ++p_step) {
                if (p_rest != 0) {
                  p_next = p_base + p_turn * 32 + __ffs(p_rest) - 1;
                  ++p_count;
                  p_rest &= p_rest - 1;
                }
                const int p = p_next;
                float (&update)[8] = update_all[p_step];
                #pragma unroll
                for (int w_turn = 0; w_turn < 2; ++w_turn) {
                  const int w_first = (thread + w_turn * 32) * 4;
                  STITCH_LOAD_NEIGHBOURS(float, 4, t5_vector, b2, p * 256 + w_first, aligned);
                  #pragma unroll
                  for (int element = 0; element < 4; ++element) {
                    const int w = w_first + element;
                    const float t5 = t5_vector.value[element];
                    const float t6 = (t5 * 0x1.0000000000000p-1f);
                    update[w_turn * 4 + element] = t6;
                  }
                }
              }
              #pragma unroll
              for (int p_step = 0; p_step < 2; ++p_step) {
                if (p_step >= p_count) break;
                float (&update)[8] = update_all[p_step];
                #pragma unroll
                for (int w_turn = 0; w_turn < 2; ++w_turn) {
                  const int w_first = (thread + w_turn * 32) * 4;
                  #pragma unroll
                  for (int element = 0; element < 4; ++element) {
                    const int w = w_first + element;
                    const float t7 = update[w_turn * 4 + element];
                    const float t8 = result[w_turn * 4 + element];
                    const float t9 = (t8 + t7);
                    const float t10 = (float)t9;
                    result[w_turn * 4 + element] = t10;
                  }
                }
              }
            }
          }
        }
        #pragma unroll
        for (int w_turn = 0; w_turn < 2; ++w_turn) {
          const int w_first = (thread + w_turn * 32) * 4;
          StitchVector<float, 4> stored0;
          #pragma unroll
          for (int element = 0; element < 4; ++element) {
            const int w = w_first + element;
            const float t11 = result[w_turn * 4 + element];
            stored0.value[element] = t11;
          }
          STITCH_STORE_NEIGHBOURS(float, 4, b1, start_e80bf0c1765b * 256 + (long long)w_first, stored0, aligned);
        }
        stitch_group_sync<32>();
      }
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, void* p2, const long long work) {
  const bool aligned = ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p2 % 16 == 0);
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
  for (int work = blockIdx.x; work < 64; work += gridDim.x) {
    {
      stitch_kernel_nest1(tensors.p[0], tensors.p[2], tensors.p[1], work);
    }
  }
}
