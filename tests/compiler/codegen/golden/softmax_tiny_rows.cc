// graph softmax {
//   %0 = f32[10000,4] parameter(), number=0
//   %1 = f32[10000] reduce(%0), dimensions={1}, kind=max
//   %2 = f32[10000,4] broadcast(%1), dimensions={0}
//   %3 = f32[10000,4] subtract(%0, %2)
//   %4 = f32[10000,4] exp(%3)
//   %5 = f32[10000] reduce(%4), dimensions={1}, kind=sum
//   %6 = f32[10000,4] broadcast(%5), dimensions={0}
//   %7 = f32[10000,4] divide(%4, %6)
//   return %7
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  #pragma omp simd
  for (long long r = first_row; r < last_row; ++r) {
    const float t1 = b0[r * 4];
    const float t2 = b0[r * 4 + 1];
    const float t3 = b0[r * 4 + 2];
    const float t4 = b0[r * 4 + 3];
    const float t5 = stitch_max(t1, t2);
    const float t6 = stitch_max(t3, t4);
    const float t7 = stitch_max(t5, t6);
    const float t8 = (t1 - t7);
    const float t9 = stitch_exp(t8);
    const float t10 = (t2 - t7);
    const float t11 = stitch_exp(t10);
    const float t12 = (t3 - t7);
    const float t13 = stitch_exp(t12);
    const float t14 = (t4 - t7);
    const float t15 = stitch_exp(t14);
    const float t16 = (t9 + t11);
    const float t17 = (t13 + t15);
    const float t18 = (t16 + t17);
    const float t19 = (t9 / t18);
    const float t20 = (t11 / t18);
    const float t21 = (t13 / t18);
    const float t22 = (t15 / t18);
    b1[r * 4] = t19;
    b1[r * 4 + 1] = t20;
    b1[r * 4 + 2] = t21;
    b1[r * 4 + 3] = t22;
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 10000, 1728, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], outputs[0]};
  runtime->parallel_for(runtime, 6, 9166, stitch_kernel_phase0, all);
}
