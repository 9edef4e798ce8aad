// graph cross_entropy {
//   %0 = f32[160,8000] parameter(), number=0
//   %1 = s32[160] parameter(), number=1
//   %2 = f32[160] reduce(%0), dimensions={1}, kind=max
//   %3 = f32[160,8000] broadcast(%2), dimensions={0}
//   %4 = f32[160,8000] subtract(%0, %3)
//   %5 = f32[160,8000] exp(%4)
//   %6 = f32[160] reduce(%5), dimensions={1}, kind=sum
//   %7 = f32[160] log(%6)
//   %8 = f32[160,8000] broadcast(%7), dimensions={0}
//   %9 = f32[160,8000] subtract(%4, %8)
//   %10 = s32[160,8000] broadcast(%1), dimensions={0}
//   %11 = s32[160,8000] iota(), dimension=1
//   %12 = pred[160,8000] compare(%10, %11), direction=EQ, total_order=False
//   %13 = f32[] constant(), literal={0.0}
//   %14 = f32[160,8000] broadcast(%13), dimensions={}
//   %15 = f32[160,8000] select(%12, %9, %14)
//   %16 = f32[160] reduce(%15), dimensions={1}, kind=sum
//   %17 = f32[160] negate(%16)
//   %18 = f32[] constant(), literal={1.0}
//   %19 = f32[160,8000] broadcast(%18), dimensions={}
//   %20 = f32[] constant(), literal={0.0}
//   %21 = f32[160,8000] broadcast(%20), dimensions={}
//   %22 = f32[160,8000] exp(%9)
//   %23 = f32[160,8000] select(%12, %19, %21)
//   %24 = f32[160,8000] subtract(%22, %23)
//   %25 = f32[] reduce(%17), dimensions={0}, kind=sum
//   %26 = f32[] constant(), literal={0.00625}
//   %27 = f32[] multiply(%25, %26)
//   return %27, %17, %24
// }

// 160 blocks of 256 threads, 256 bytes of shared memory

struct stitch_kernel_Tensors { void* p[6]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, void* p4, const int work) {
  STITCH_GLOBAL(float, b0, p0, 1280000);
  STITCH_GLOBAL_CONST(float, b1, p1, 1280000);
  STITCH_GLOBAL_CONST(int, b2, p2, 160);
  STITCH_GLOBAL(float, b3, p3, 160);
  STITCH_GLOBAL(double, b4, p4, 160);
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  double task22 = 0x0.0p+0;
  for (int r = first_row; r < last_row; ++r) {
    float lane1 = -__builtin_inff();
    for (int k8000_1_first = thread * 4; k8000_1_first < 8000; k8000_1_first += 1024) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b1, r * 8000 + k8000_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k8000_1 = k8000_1_first + element;
        const float t2 = t2_vector.value[element];
        lane1 = stitch_max((float)lane1, t2);
      }
    }
    const float sum3 = stitch_group_reduce<256>(lane1, [](const float a, const float b) { return (float)(stitch_max(a, b)); }, reduce_shared);
    float lane4 = 0x0.0p+0f;
    for (int k8000_1_first = thread * 4; k8000_1_first < 8000; k8000_1_first += 1024) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t5_vector, b1, r * 8000 + k8000_1_first, aligned);
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k8000_1 = k8000_1_first + element;
        const float t5 = t5_vector.value[element];
        const float t6 = (t5 - sum3);
        const float t7 = stitch_exp(t6);
        lane4 = ((float)lane4 + t7);
      }
    }
    const float sum8 = stitch_group_reduce<256>(lane4, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    float lane9 = 0x0.0p+0f;
    const int t10 = b2[r];
    const float t15 = stitch_log(sum8);
    for (int k8000_1_first = thread * 4; k8000_1_first < 8000; k8000_1_first += 1024) {
      STITCH_LOAD_NEIGHBOURS(float, 4, t13_vector, b1, r * 8000 + k8000_1_first, aligned);
      StitchVector<float, 4> stored0;
      #pragma unroll
      for (int element = 0; element < 4; ++element) {
        const int k8000_1 = k8000_1_first + element;
        const int t11 = (int)(k8000_1);
        const bool t12 = (t10 == t11);
        const float t13 = t13_vector.value[element];
        const float t14 = (t13 - sum3);
        const float t16 = (t14 - t15);
        const float t17 = (t12 ? t16 : 0x0.0p+0f);
        const float t18 = stitch_exp(t16);
        const float t19 = (t12 ? 0x1.0000000000000p+0f : 0x0.0p+0f);
        const float t20 = (t18 - t19);
        stored0.value[element] = t20;
        lane9 = ((float)lane9 + t17);
      }
      STITCH_STORE_NEIGHBOURS(float, 4, b0, r * 8000 + k8000_1_first, stored0, aligned);
    }
    const float sum21 = stitch_group_reduce<256>(lane9, [](const float a, const float b) { return (float)((a + b)); }, reduce_shared);
    float lane23 = 0x0.0p+0f;
    const float t24 = (-(sum21));
    if (thread == 0) b3[r] = t24;
    lane23 = ((float)lane23 + t24);
    const float sum25 = lane23;
    task22 = ((double)task22 + sum25);
  }
  for (int it26 = thread; it26 < 1; it26 += 256) {
    const double t27 = task22;
    b4[task] = t27;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, void* p4, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, p4, work);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, p4, work);
}

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest1_vectors(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(double, b0, p0, 160);
  STITCH_GLOBAL(float, b1, p1, 1);
  if (threadIdx.x >= 32) return;
  const int thread = threadIdx.x;
  const int reduce_shared = 0;
  const int task = work;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
    double total = 0x0.0p+0;
    for (int t_first = thread * 2; t_first < 160; t_first += 64) {
      STITCH_LOAD_NEIGHBOURS(double, 2, part_vector, b0, t_first, aligned);
      #pragma unroll
      for (int element = 0; element < 2; ++element) {
        const int t = t_first + element;
        const double part = part_vector.value[element];
        total = ((double)total + part);
      }
    }
    const double sum = stitch_group_reduce<32>(total, [](const double a, const double b) { return (double)((a + b)); }, reduce_shared);
    const float rounded = (float)sum;
    if (thread == 0) b1[0] = rounded;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, const int work) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0);
  if (aligned) stitch_kernel_nest1_vectors<true>(p0, p1, work);
  else stitch_kernel_nest1_vectors<false>(p0, p1, work);
}

static __device__ __forceinline__ void stitch_kernel_nest2(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 1);
  STITCH_GLOBAL(float, b1, p1, 1);
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 256;
  const int last_row = first_row + 256 < 1 ? first_row + 256 : 1;
  const float t1 = b0[0];
  const float t2 = (t1 * 0x1.99999a0000000p-8f);
  for (int r = first_row + thread; r < last_row; r += 256) {
    b1[0] = t2;
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 160; work += gridDim.x) {
    {
      stitch_kernel_nest0(tensors.p[4], tensors.p[0], tensors.p[1], tensors.p[3], (char*)tensors.p[5] + 0, work);
    }
    __syncthreads();
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 1; work += gridDim.x) {
    {
      stitch_kernel_nest1((char*)tensors.p[5] + 0, (char*)tensors.p[5] + 1280, work);
    }
  }
  __syncthreads();
  for (int work = blockIdx.x; work < 1; work += gridDim.x) {
    {
      stitch_kernel_nest2((char*)tensors.p[5] + 1280, tensors.p[2], work);
    }
  }
}
