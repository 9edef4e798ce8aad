// graph attention_heads {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[1024,256] broadcast(%1), dimensions={1}
//   %3 = f32[1024,256] add(%0, %2)
//   %4 = f32[8,128,4,64] reshape(%3)
//   %5 = f32[8,4,128,64] transpose(%4), permutation={0,2,1,3}
//   return %5
// }

// 512 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[3]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, const long long work) {
  STITCH_GLOBAL(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(float, b1, p1, 262144);
  STITCH_GLOBAL_CONST(float, b2, p2, 256);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const long long task = work * 8 + group;
  if (task >= 4096) return;
  const long long first_row = task * 1;
  const long long last_row = first_row + 1 < 4096 ? first_row + 1 : 4096;
  for (long long r = first_row; r < last_row; ++r) {
    const int whole = ((unsigned long long)p0 % 8 == 0) & ((unsigned long long)p1 % 8 == 0) & ((unsigned long long)p2 % 8 == 0) ? 64 : 0;
    for (int k64_1_first = thread * 2; k64_1_first < whole; k64_1_first += 64) {
      STITCH_LOAD_NEIGHBOURS(float, 2, t1_vector, b1, (r / 512) * 32768 + (r % 128) * 256 + (r / 128 % 4) * 64 + k64_1_first, true);
      STITCH_LOAD_NEIGHBOURS(float, 2, t2_vector, b2, (r / 128 % 4) * 64 + k64_1_first, true);
      StitchVector<float, 2> stored0;
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int k64_1 = k64_1_first + element;
        const float t1 = t1_vector.value[element];
        const float t2 = t2_vector.value[element];
        const float t3 = (t1 + t2);
        stored0.value[element] = t3;
      }
      STITCH_STORE_NEIGHBOURS(float, 2, b0, r * 64 + k64_1_first, stored0, true);
    }
    for (int k64_1 = whole + thread; k64_1 < 64; k64_1 += 32) {
      const float t1 = b1[(r / 512) * 32768 + (r % 128) * 256 + (r / 128 % 4) * 64 + k64_1];
      const float t2 = b2[(r / 128 % 4) * 64 + k64_1];
      const float t3 = (t1 + t2);
      b0[r * 64 + k64_1] = t3;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (long long work = blockIdx.x; work < 512; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[2], tensors.p[0], tensors.p[1], work);
    }
  }
}
