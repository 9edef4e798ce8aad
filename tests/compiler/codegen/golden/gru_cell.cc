// graph gru_cell {
//   %0 = f32[64,36] parameter(), number=0
//   %1 = f32[64,36] parameter(), number=1
//   %2 = f32[72,72] parameter(), number=2
//   %3 = f32[72,36] parameter(), number=3
//   %4 = f32[72] parameter(), number=4
//   %5 = f32[64,72] concatenate(%0, %1), dimension=1
//   %6 = f32[64,72] dot(%5, %2)
//   %7 = f32[64,72] broadcast(%4), dimensions={1}
//   %8 = f32[64,72] add(%6, %7)
//   %9 = f32[64,72] logistic(%8)
//   %10 = f32[64,36] slice(%9), limit={64,36}, start={0,0}, strides={1,1}
//   %11 = f32[64,36] slice(%9), limit={64,72}, start={0,36}, strides={1,1}
//   %12 = f32[64,36] multiply(%10, %1)
//   %13 = f32[64,72] concatenate(%0, %12), dimension=1
//   %14 = f32[64,36] dot(%13, %3)
//   %15 = f32[64,36] tanh(%14)
//   %16 = f32[64,36] multiply(%11, %1)
//   %17 = f32[64,36] negate(%11)
//   %18 = f32[] constant(), literal={1.0}
//   %19 = f32[64,36] broadcast(%18), dimensions={}
//   %20 = f32[64,36] add(%17, %19)
//   %21 = f32[64,36] multiply(%20, %15)
//   %22 = f32[64,36] add(%16, %21)
//   return %22
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  float* __restrict b2 = (float*)tensors[2];
  const float* __restrict b3 = (const float*)tensors[3];
  const float* __restrict b4 = (const float*)tensors[4];
  const float* __restrict b5 = (const float*)tensors[5];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long group_first = first_row; group_first < last_row; group_first += 6) {
    const long long group_last = group_first + 6 < last_row ? group_first + 6 : last_row;
    __attribute__((aligned(64))) float factors2[432];
    __attribute__((aligned(64))) float factors8[432];
    __attribute__((aligned(64))) float row1[432];
    __attribute__((aligned(64))) float row7[216];
    for (long long r = group_first; r < group_last; ++r) {
      #pragma omp simd
      for (int k72_1 = 0; k72_1 < 36; ++k72_1) {
        const float t3 = b3[r * 36 + k72_1];
        const float t5 = (t3);
        factors2[r * 72 + k72_1 - group_first * 72] = t5;
      }
      #pragma omp simd
      for (int k72_1 = 36; k72_1 < 72; ++k72_1) {
        const float t4 = b4[r * 36 + k72_1 - 36];
        const float t5 = (t4);
        factors2[r * 72 + k72_1 - group_first * 72] = t5;
      }
    }
    stitch_product_rows<72>(
        72, (int)(group_last - group_first), 72, row1 + 0,
        [&](long long row, int k72_1) __attribute__((always_inline)) -> float {
          const long long r = group_first + row;
          const float t6 = factors2[r * 72 + k72_1 - group_first * 72];
          return t6;
        },
        [&](int k72_1) __attribute__((always_inline)) { return b0 + (k72_1 * 72); });
    for (long long r = group_first; r < group_last; ++r) {
      #pragma omp simd
      for (int k72_1 = 0; k72_1 < 36; ++k72_1) {
        const float t9 = b3[r * 36 + k72_1];
        const float t16 = (t9);
        factors8[r * 72 + k72_1 - group_first * 72] = t16;
      }
      #pragma omp simd
      for (int k72_1 = 36; k72_1 < 72; ++k72_1) {
        const float t10 = row1[r * 72 + k72_1 - group_first * 72 - 36];
        const float t11 = b5[k72_1 - 36];
        const float t12 = (t10 + t11);
        const float t13 = stitch_logistic(t12);
        const float t14 = b4[r * 36 + k72_1 - 36];
        const float t15 = (t13 * t14);
        const float t16 = (t15);
        factors8[r * 72 + k72_1 - group_first * 72] = t16;
      }
    }
    stitch_product_rows<36>(
        72, (int)(group_last - group_first), 36, row7 + 0,
        [&](long long row, int k72_1) __attribute__((always_inline)) -> float {
          const long long r = group_first + row;
          const float t17 = factors8[r * 72 + k72_1 - group_first * 72];
          return t17;
        },
        [&](int k72_1) __attribute__((always_inline)) { return b1 + (k72_1 * 36); });
    for (long long r = group_first; r < group_last; ++r) {
      {
        __attribute__((aligned(64))) float t29_last[8];
        #pragma omp simd
        for (int lane = 0; lane < 8; ++lane) {
          const int k36_1 = 28 + lane;
          const float t18 = row1[r * 72 + k36_1 - group_first * 72 + 36];
          const float t19 = b5[k36_1 + 36];
          const float t20 = (t18 + t19);
          const float t21 = stitch_logistic(t20);
          const float t22 = b4[r * 36 + k36_1];
          const float t23 = (t21 * t22);
          const float t24 = (-(t21));
          const float t25 = (t24 + 0x1.0000000000000p+0f);
          const float t26 = row7[r * 36 + k36_1 - group_first * 36];
          const float t27 = stitch_tanh(t26);
          const float t28 = (t25 * t27);
          const float t29 = (t23 + t28);
          t29_last[lane] = t29;
        }
        #pragma omp simd
        for (int k36_1 = 0; k36_1 < 32; ++k36_1) {
          const float t18 = row1[r * 72 + k36_1 - group_first * 72 + 36];
          const float t19 = b5[k36_1 + 36];
          const float t20 = (t18 + t19);
          const float t21 = stitch_logistic(t20);
          const float t22 = b4[r * 36 + k36_1];
          const float t23 = (t21 * t22);
          const float t24 = (-(t21));
          const float t25 = (t24 + 0x1.0000000000000p+0f);
          const float t26 = row7[r * 36 + k36_1 - group_first * 36];
          const float t27 = stitch_tanh(t26);
          const float t28 = (t25 * t27);
          const float t29 = (t23 + t28);
          b2[r * 36 + k36_1] = t29;
        }
        #pragma omp simd
        for (int lane = 0; lane < 4; ++lane) {
          const int k36_1 = 32 + lane;
          b2[r * 36 + k36_1] = t29_last[4 + lane];
        }
      }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3], all[4], all[5]};
  stitch_kernel_nest0(tensors, 64, 36, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[2], (void*)inputs[3], outputs[0], (void*)inputs[0], (void*)inputs[1], (void*)inputs[4]};
  stitch_kernel_phase0(all, 0, 2);
}
