// graph many_tensors {
//   %0 = f32[] parameter(), number=0
//   %1 = f32[64,64] parameter(), number=1
//   %2 = f32[64,64] parameter(), number=2
//   %3 = f32[64,64] parameter(), number=3
//   %4 = f32[] constant(), literal={0.9}
//   %5 = f32[64,64] broadcast(%4), dimensions={}
//   %6 = f32[64,64] multiply(%2, %5)
//   %7 = f32[64,64] add(%6, %3)
//   %8 = f32[64,64] broadcast(%0), dimensions={}
//   %9 = f32[64,64] multiply(%7, %8)
//   %10 = f32[64,64] subtract(%1, %9)
//   %11 = f32[100] parameter(), number=4
//   %12 = f32[100] parameter(), number=5
//   %13 = f32[100] parameter(), number=6
//   %14 = f32[] constant(), literal={0.9}
//   %15 = f32[100] broadcast(%14), dimensions={}
//   %16 = f32[100] multiply(%12, %15)
//   %17 = f32[100] add(%16, %13)
//   %18 = f32[100] broadcast(%0), dimensions={}
//   %19 = f32[100] multiply(%17, %18)
//   %20 = f32[100] subtract(%11, %19)
//   %21 = f32[3,5,7] parameter(), number=7
//   %22 = f32[3,5,7] parameter(), number=8
//   %23 = f32[3,5,7] parameter(), number=9
//   %24 = f32[] constant(), literal={0.9}
//   %25 = f32[3,5,7] broadcast(%24), dimensions={}
//   %26 = f32[3,5,7] multiply(%22, %25)
//   %27 = f32[3,5,7] add(%26, %23)
//   %28 = f32[3,5,7] broadcast(%0), dimensions={}
//   %29 = f32[3,5,7] multiply(%27, %28)
//   %30 = f32[3,5,7] subtract(%21, %29)
//   %31 = f32[300] parameter(), number=10
//   %32 = f32[] parameter(), number=11
//   %33 = f32[300] broadcast(%32), dimensions={}
//   %34 = f32[300] multiply(%31, %33)
//   %35 = f32[20] parameter(), number=12
//   %36 = f32[] parameter(), number=13
//   %37 = f32[20] broadcast(%36), dimensions={}
//   %38 = f32[20] multiply(%35, %37)
//   %39 = f32[33] parameter(), number=14
//   %40 = f32[33] negate(%39)
//   return %10, %7, %20, %17, %30, %27, %34, %38, %40
// }

// 20 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[24]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, void* p2, void* p3, void* p4, void* p5, const int first_row, const int last_row) {
  STITCH_GLOBAL(float, b0, p0, last_row);
  STITCH_GLOBAL(float, b1, p1, last_row);
  STITCH_GLOBAL(float, b2, p2, last_row);
  STITCH_GLOBAL(float, b3, p3, last_row);
  STITCH_GLOBAL_CONST(float, b4, p4, 1);
  STITCH_GLOBAL(float, b5, p5, last_row);
  const int thread = threadIdx.x;
  const float t6 = b4[0];
  for (int r = first_row + thread; r < last_row; r += 256) {
    const float t1 = b0[r];
    const float t2 = (t1 * 0x1.cccccc0000000p-1f);
    const float t3 = b1[r];
    const float t4 = (t2 + t3);
    const float t5 = b3[r];
    const float t7 = (t4 * t6);
    const float t8 = (t5 - t7);
    b2[r] = t4;
    b5[r] = t8;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, void* p2, const int first_row, const int last_row) {
  STITCH_GLOBAL(float, b0, p0, last_row);
  STITCH_GLOBAL_CONST(float, b1, p1, 1);
  STITCH_GLOBAL(float, b2, p2, last_row);
  const int thread = threadIdx.x;
  const float t2 = b1[0];
  for (int r = first_row + thread; r < last_row; r += 256) {
    const float t1 = b0[r];
    const float t3 = (t1 * t2);
    b2[r] = t3;
  }
}

static __device__ __forceinline__ void stitch_kernel_nest2(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(float, b0, p0, 33);
  STITCH_GLOBAL(float, b1, p1, 33);
  const int thread = threadIdx.x;
  const int task = work;
  const int first_row = task * 256;
  const int last_row = first_row + 256 < 33 ? first_row + 256 : 33;
  for (int r = first_row + thread; r < last_row; r += 256) {
    const float t1 = b0[r];
    const float t2 = (-(t1));
    b1[r] = t2;
  }
}

static __constant__ const struct { int start, rows; int tensors[6]; } stitch_kernel_table0[] = {
  {0, 4096, {2, 3, 16, 1, 0, 15}},
  {4096, 105, {8, 9, 20, 7, 0, 19}},
  {4224, 100, {5, 6, 18, 4, 0, 17}},
};

static __constant__ const struct { int start, rows; int tensors[3]; } stitch_kernel_table1[] = {
  {0, 300, {10, 11, 21}},
  {320, 20, {12, 13, 22}},
};

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 20; work += gridDim.x) {
    if (work < 17) {
      const int task = work;
      const int begin = task * 256;
      const int end = begin + 256;
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
        if (from < to) stitch_kernel_nest0(tensors.p[stitch_kernel_table0[one].tensors[0]], tensors.p[stitch_kernel_table0[one].tensors[1]], tensors.p[stitch_kernel_table0[one].tensors[2]], tensors.p[stitch_kernel_table0[one].tensors[3]], tensors.p[0], tensors.p[stitch_kernel_table0[one].tensors[5]], from, to);
      }
    }
    else if (work < 19) {
      const int task = work - 17;
      const int begin = task * 256;
      const int end = begin + 256;
      int one = 0, above = 2;
      while (above - one > 1) {
        const int middle = (one + above) / 2;
        if (stitch_kernel_table1[middle].start <= begin) one = middle;
        else above = middle;
      }
      for (; one < 2 && stitch_kernel_table1[one].start < end; ++one) {
        const int start = stitch_kernel_table1[one].start, rows = stitch_kernel_table1[one].rows;
        const int from = begin > start ? begin - start : 0;
        const int to = end - start < rows ? end - start : rows;
        if (from < to) stitch_kernel_nest1(tensors.p[stitch_kernel_table1[one].tensors[0]], tensors.p[stitch_kernel_table1[one].tensors[1]], tensors.p[stitch_kernel_table1[one].tensors[2]], from, to);
      }
    }
    else {
      stitch_kernel_nest2(tensors.p[14], tensors.p[23], work - 19);
    }
  }
}
