// graph layer_norm {
//   %0 = f32[1024,256] parameter(), number=0
//   %1 = f32[256] parameter(), number=1
//   %2 = f32[256] parameter(), number=2
//   %3 = f32[1024] reduce(%0), dimensions={1}, kind=sum
//   %4 = f32[] constant(), literal={0.00390625}
//   %5 = f32[1024] broadcast(%4), dimensions={}
//   %6 = f32[1024] multiply(%3, %5)
//   %7 = f32[1024,256] broadcast(%6), dimensions={0}
//   %8 = f32[1024,256] subtract(%0, %7)
//   %9 = f32[1024,256] multiply(%8, %8)
//   %10 = f32[1024] reduce(%9), dimensions={1}, kind=sum
//   %11 = f32[] constant(), literal={0.00390625}
//   %12 = f32[1024] broadcast(%11), dimensions={}
//   %13 = f32[1024] multiply(%10, %12)
//   %14 = f32[] constant(), literal={0.001}
//   %15 = f32[1024] broadcast(%14), dimensions={}
//   %16 = f32[1024] add(%13, %15)
//   %17 = f32[1024] rsqrt(%16)
//   %18 = f32[1024,256] broadcast(%17), dimensions={0}
//   %19 = f32[1024,256] multiply(%8, %18)
//   %20 = f32[1024,256] broadcast(%1), dimensions={1}
//   %21 = f32[1024,256] multiply(%19, %20)
//   %22 = f32[1024,256] broadcast(%2), dimensions={1}
//   %23 = f32[1024,256] add(%21, %22)
//   return %23, %6, %17
// }

// 128 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[6]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, const int work) {
  STITCH_GLOBAL(float, b0, p0, 262144);
  STITCH_GLOBAL_CONST(float, b1, p1, 262144);
  STITCH_GLOBAL(float, b2, p2, 1024);
  STITCH_GLOBAL(float, b3, p3, 1024);
  STITCH_GLOBAL_CONST(float, b4, p4, 256);
  STITCH_GLOBAL_CONST(float, b5, p5, 256);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int reduce_shared = 0;
  const int task = work * 8 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    float lane1 = 0x0.0p+0f;
    float kept1[8];
    #pragma unroll
    for (int k256_1_turn = 0; k256_1_turn < 2; ++k256_1_turn) {
      const int k256_1_first = (thread + k256_1_turn * 32) * 4;
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b1, r * 256 + k256_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k256_1 = k256_1_first + element;
        const float t2 = t2_vector.value[element];
        kept1[k256_1_turn * 4 + element] = t2;
        lane1 = ((float)lane1 + t2);
      }
    }
    const float sum3 = stitch_group_reduce<32>(lane1, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    const float t4 = (sum3 * 0x1.0000000000000p-8f);
    if (thread == 0) b2[r] = t4;
    float lane5 = 0x0.0p+0f;
    #pragma unroll
    for (int k256_1_turn = 0; k256_1_turn < 2; ++k256_1_turn) {
      const int k256_1_first = (thread + k256_1_turn * 32) * 4;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k256_1 = k256_1_first + element;
        const float t6 = kept1[k256_1_turn * 4 + element];
        const float t7 = (t6 - t4);
        const float t8 = (t7 * t7);
        lane5 = ((float)lane5 + t8);
      }
    }
    const float sum9 = stitch_group_reduce<32>(lane5, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    const float t10 = (sum9 * 0x1.0000000000000p-8f);
    const float t11 = (t10 + 0x1.0624de0000000p-10f);
    const float t12 = (1 / __builtin_sqrtf(t11));
    if (thread == 0) b3[r] = t12;
    #pragma unroll
    for (int k256_1_turn = 0; k256_1_turn < 2; ++k256_1_turn) {
      const int k256_1_first = (thread + k256_1_turn * 32) * 4;
      STITCH_LOAD_NEIGHBOURS(float, 4, t16_vector, b4, k256_1_first, aligned);
      STITCH_LOAD_NEIGHBOURS(float, 4, t18_vector, b5, k256_1_first, aligned);
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k256_1 = k256_1_first + element;
        const float t13 = kept1[k256_1_turn * 4 + element];
        const float t14 = (t13 - t4);
        const float t15 = (t14 * t12);
        const float t16 = t16_vector.value[element];
        const float t17 = (t15 * t16);
        const float t18 = t18_vector.value[element];
        const float t19 = (t17 + t18);
        stored0.value[element] = t19;
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 256 + k256_1_first, stored0, aligned);
    }
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p4 % 16 == 0) & ((unsigned long long)p5 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, p4, p5, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, p4, p5, work);
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 128; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[3], tensors.p[0], tensors.p[4], tensors.p[5], tensors.p[1], tensors.p[2], work);
    }
  }
}
