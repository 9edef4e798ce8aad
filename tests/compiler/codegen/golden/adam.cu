// graph adam {
//   %0 = f32[] parameter(), number=0
//   %1 = f32[256,256] parameter(), number=1
//   %2 = f32[256,256] parameter(), number=2
//   %3 = f32[256,256] parameter(), number=3
//   %4 = f32[256,256] parameter(), number=4
//   %5 = f32[256,256] subtract(%4, %2)
//   %6 = f32[] constant(), literal={0.1}
//   %7 = f32[256,256] broadcast(%6), dimensions={}
//   %8 = f32[256,256] multiply(%5, %7)
//   %9 = f32[256,256] add(%2, %8)
//   %10 = f32[256,256] multiply(%4, %4)
//   %11 = f32[256,256] subtract(%10, %3)
//   %12 = f32[] constant(), literal={0.001}
//   %13 = f32[256,256] broadcast(%12), dimensions={}
//   %14 = f32[256,256] multiply(%11, %13)
//   %15 = f32[256,256] add(%3, %14)
//   %16 = f32[256,256] broadcast(%0), dimensions={}
//   %17 = f32[256,256] multiply(%9, %16)
//   %18 = f32[256,256] abs(%15)
//   %19 = f32[256,256] sqrt(%18)
//   %20 = f32[] constant(), literal={0.001}
//   %21 = f32[256,256] broadcast(%20), dimensions={}
//   %22 = f32[256,256] add(%19, %21)
//   %23 = f32[256,256] divide(%17, %22)
//   %24 = f32[256,256] subtract(%1, %23)
//   %25 = f32[256] parameter(), number=5
//   %26 = f32[256] parameter(), number=6
//   %27 = f32[256] parameter(), number=7
//   %28 = f32[256] parameter(), number=8
//   %29 = f32[256] subtract(%28, %26)
//   %30 = f32[] constant(), literal={0.1}
//   %31 = f32[256] broadcast(%30), dimensions={}
//   %32 = f32[256] multiply(%29, %31)
//   %33 = f32[256] add(%26, %32)
//   %34 = f32[256] multiply(%28, %28)
//   %35 = f32[256] subtract(%34, %27)
//   %36 = f32[] constant(), literal={0.001}
//   %37 = f32[256] broadcast(%36), dimensions={}
//   %38 = f32[256] multiply(%35, %37)
//   %39 = f32[256] add(%27, %38)
//   %40 = f32[256] broadcast(%0), dimensions={}
//   %41 = f32[256] multiply(%33, %40)
//   %42 = f32[256] abs(%39)
//   %43 = f32[256] sqrt(%42)
//   %44 = f32[] constant(), literal={0.001}
//   %45 = f32[256] broadcast(%44), dimensions={}
//   %46 = f32[256] add(%43, %45)
//   %47 = f32[256] divide(%41, %46)
//   %48 = f32[256] subtract(%25, %47)
//   %49 = f32[64,3] parameter(), number=9
//   %50 = f32[64,3] parameter(), number=10
//   %51 = f32[64,3] parameter(), number=11
//   %52 = f32[64,3] parameter(), number=12
//   %53 = f32[64,3] subtract(%52, %50)
//   %54 = f32[] constant(), literal={0.1}
//   %55 = f32[64,3] broadcast(%54), dimensions={}
//   %56 = f32[64,3] multiply(%53, %55)
//   %57 = f32[64,3] add(%50, %56)
//   %58 = f32[64,3] multiply(%52, %52)
//   %59 = f32[64,3] subtract(%58, %51)
//   %60 = f32[] constant(), literal={0.001}
//   %61 = f32[64,3] broadcast(%60), dimensions={}
//   %62 = f32[64,3] multiply(%59, %61)
//   %63 = f32[64,3] add(%51, %62)
//   %64 = f32[64,3] broadcast(%0), dimensions={}
//   %65 = f32[64,3] multiply(%57, %64)
//   %66 = f32[64,3] abs(%63)
//   %67 = f32[64,3] sqrt(%66)
//   %68 = f32[] constant(), literal={0.001}
//   %69 = f32[64,3] broadcast(%68), dimensions={}
//   %70 = f32[64,3] add(%67, %69)
//   %71 = f32[64,3] divide(%65, %70)
//   %72 = f32[64,3] subtract(%49, %71)
//   return %24, %9, %15, %48, %33, %39, %72, %57, %63
// }

// 65 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[22]; };

template <bool aligned>
static __device__ __forceinline__ void stitch_kernel_nest0_vectors(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, void* p6, void* p7, const int first_row, const int last_row) {
  STITCH_GLOBAL(float, b0, p0, last_row);
  STITCH_GLOBAL(float, b1, p1, last_row);
  STITCH_GLOBAL(float, b2, p2, last_row);
  STITCH_GLOBAL(float, b3, p3, last_row);
  STITCH_GLOBAL(float, b4, p4, last_row);
  STITCH_GLOBAL(float, b5, p5, last_row);
  STITCH_GLOBAL_CONST(float, b6, p6, 1);
  STITCH_GLOBAL(float, b7, p7, last_row);
  const int thread = threadIdx.x;
  const float t12 = b6[0];
  const int whole = aligned ? first_row + (last_row - first_row) / 4 * 4 : first_row;
  #pragma unroll 1
  for (int r_first = first_row + thread * 4; r_first < whole; r_first += 1024) {
    STITCH_LOAD_NEIGHBOURS(float, 4, t1_vector, b0, r_first, true);
    STITCH_LOAD_NEIGHBOURS(float, 4, t2_vector, b1, r_first, true);
    STITCH_LOAD_NEIGHBOURS(float, 4, t6_vector, b3, r_first, true);
    STITCH_LOAD_NEIGHBOURS(float, 4, t11_vector, b5, r_first, true);
    StitchVector<float, 4> stored0;
    StitchVector<float, 4> stored1;
    StitchVector<float, 4> stored2;
    #pragma unroll
    for (int element = 0; element < 4; ++element) {
      const int r = r_first + element;
      const float t1 = t1_vector.value[element];
      const float t2 = t2_vector.value[element];
      const float t3 = (t2 - t1);
      const float t4 = (t3 * 0x1.99999a0000000p-4f);
      const float t5 = (t1 + t4);
      const float t6 = t6_vector.value[element];
      const float t7 = (t2 * t2);
      const float t8 = (t7 - t6);
      const float t9 = (t8 * 0x1.0624de0000000p-10f);
      const float t10 = (t6 + t9);
      const float t11 = t11_vector.value[element];
      const float t13 = (t5 * t12);
      const float t14 = __builtin_fabsf(t10);
      const float t15 = __builtin_sqrtf(t14);
      const float t16 = (t15 + 0x1.0624de0000000p-10f);
      const float t17 = (t13 / t16);
      const float t18 = (t11 - t17);
      stored0.value[element] = t5;
      stored1.value[element] = t10;
      stored2.value[element] = t18;
    }
    STITCH_STORE_NEIGHBOURS(float, 4, b2, r_first, stored0, true);
    STITCH_STORE_NEIGHBOURS(float, 4, b4, r_first, stored1, true);
    STITCH_STORE_NEIGHBOURS(float, 4, b7, r_first, stored2, true);
  }
  for (int r = whole + thread; r < last_row; r += 256) {
    const float t1 = b0[r];
    const float t2 = b1[r];
    const float t3 = (t2 - t1);
    const float t4 = (t3 * 0x1.99999a0000000p-4f);
    const float t5 = (t1 + t4);
    const float t6 = b3[r];
    const float t7 = (t2 * t2);
    const float t8 = (t7 - t6);
    const float t9 = (t8 * 0x1.0624de0000000p-10f);
    const float t10 = (t6 + t9);
    const float t11 = b5[r];
    const float t13 = (t5 * t12);
    const float t14 = __builtin_fabsf(t10);
    const float t15 = __builtin_sqrtf(t14);
    const float t16 = (t15 + 0x1.0624de0000000p-10f);
    const float t17 = (t13 / t16);
    const float t18 = (t11 - t17);
    b2[r] = t5;
    b4[r] = t10;
    b7[r] = t18;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, void* p6, void* p7, const int first_row, const int last_row) {
  const bool aligned = ((unsigned long long)p0 % 16 == 0) & ((unsigned long long)p1 % 16 == 0) & ((unsigned long long)p2 % 16 == 0) & ((unsigned long long)p3 % 16 == 0) & ((unsigned long long)p4 % 16 == 0) & ((unsigned long long)p5 % 16 == 0) & ((unsigned long long)p7 % 16 == 0);
  if (aligned) stitch_kernel_nest0_vectors<true>(p0, p1, p2, p3, p4, p5, p6, p7, first_row, last_row);
  else stitch_kernel_nest0_vectors<false>(p0, p1, p2, p3, p4, p5, p6, p7, first_row, last_row);
}

static __constant__ const struct { int start, rows; int tensors[8]; } stitch_kernel_table0[] = {
  {0, 65536, {2, 4, 14, 3, 15, 1, 0, 13}},
  {65536, 256, {6, 8, 17, 7, 18, 5, 0, 16}},
  {65792, 192, {10, 12, 20, 11, 21, 9, 0, 19}},
};

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 65; work += gridDim.x) {
    {
      const int task = work;
      const int begin = task * 1024;
      const int end = begin + 1024;
      int one = 0, above = 3;
      while (above - one > 1) {
        const int middle = (one + above) / 2;
        if (stitch_kernel_table0[middle].start <= begin) one = middle;
        else above = middle;
      }
      for (; one < 3 && stitch_kernel_table0[one].start < end; ++one) {
        const int start = stitch_kernel_table0[one].start, rows = stitch_kernel_table0[one].rows;
        const int from = begin > start ? begin - start : 0;
        const int to = end - start < rows ? end - start : rows;
        if (from < to) stitch_kernel_nest0(tensors.p[stitch_kernel_table0[one].tensors[0]], tensors.p[stitch_kernel_table0[one].tensors[1]], tensors.p[stitch_kernel_table0[one].tensors[2]], tensors.p[stitch_kernel_table0[one].tensors[3]], tensors.p[stitch_kernel_table0[one].tensors[4]], tensors.p[stitch_kernel_table0[one].tensors[5]], tensors.p[0], tensors.p[stitch_kernel_table0[one].tensors[7]], from, to);
      }
    }
  }
}
