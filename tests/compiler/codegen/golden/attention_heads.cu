// graph attention_heads {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[1024,256] broadcast(%1), dimensions={1}
//   %3 = f32[1024,256] add(%0, %2)
//   %4 = f32[8,128,4,64] reshape(%3)
//   %5 = f32[8,4,128,64] transpose(%4), permutation={0,2,1,3}
//   return %5
// }

// 256 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[3]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, const int work) {
  STITCH_GLOBAL(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(float, b1, p1, 262144);
  STITCH_GLOBAL_CONST(float, b2, p2, 256);
  const int thread = threadIdx.x % 16, group = threadIdx.x / 16;
  const int task = work * 16 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    const int whole = aligned ? 64 : 0;
    for (int k64_1_first = thread * 4; k64_1_first < whole; k64_1_first += 64) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t1_vector, b1, (r / 512) * 32768 + (r % 128) * 256 + (r / 128 % 4) * 64 + k64_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b2, (r / 128 % 4) * 64 + k64_1_first, true);
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k64_1 = k64_1_first + element;
        const float t1 = t1_vector.value[element];
        const float t2 = t2_vector.value[element];
        const float t3 = (t1 + t2);
        stored0.value[element] = t3;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 64 + k64_1_first, stored0, true);
    }
    for (int k64_1 = whole + thread; k64_1 < 64; k64_1 += 16) {
      const float t1 = b1[(r / 512) * 32768 + (r % 128) * 256 + (r / 128 % 4) * 64 + k64_1];
      const float t2 = b2[(r / 128 % 4) * 64 + k64_1];
      const float t3 = (t1 + t2);
      b0[r * 64 + k64_1] = t3;
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p2 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 256; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[2], tensors.p[0], tensors.p[1], work);
    }
  }
}
