// graph column_sum {
//   %0 = f32[12,30720] parameter(), number=0
//   %1 = f32[30720] reduce(%0), dimensions={0}, kind=sum
//   return %1
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* __restrict b0 = (const float*)tensors[0];
  float* __restrict b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    __attribute__((aligned(64))) float row1[2048];
    for (int i = 0; i < 2048; ++i) row1[i] = 0x0.0p+0f;
    for (int k24576_2048 = 0; k24576_2048 < 12; ++k24576_2048) {
      #pragma omp simd
      for (int k24576_1 = 0; k24576_1 < 2048; ++k24576_1) {
        const float t2 = b0[k24576_2048 * 30720 + r * 2048 + k24576_1];
        row1[k24576_1] = (row1[k24576_1] + t2);
      }
    }
    #pragma omp simd
    for (int it3 = 0; it3 < 2048; ++it3) {
      const float t4 = row1[it3];
      b1[r * 2048 + it3] = t4;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 15, 2, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], outputs[0]};
  runtime->parallel_for(runtime, 8, 12924, stitch_kernel_phase0, all);
}
