// graph gelu {
//   %0 = f32[1024,1024] parameter(), number=0
//   %1 = f32[1024,1024] multiply(%0, %0)
//   %2 = f32[1024,1024] multiply(%1, %0)
//   %3 = f32[] constant(), literal={0.044715}
//   %4 = f32[1024,1024] broadcast(%3), dimensions={}
//   %5 = f32[1024,1024] multiply(%2, %4)
//   %6 = f32[1024,1024] add(%0, %5)
//   %7 = f32[] constant(), literal={0.7978846}
//   %8 = f32[1024,1024] broadcast(%7), dimensions={}
//   %9 = f32[1024,1024] multiply(%6, %8)
//   %10 = f32[1024,1024] tanh(%9)
//   %11 = f32[] constant(), literal={0.5}
//   %12 = f32[1024,1024] broadcast(%11), dimensions={}
//   %13 = f32[1024,1024] multiply(%0, %12)
//   %14 = f32[] constant(), literal={1.0}
//   %15 = f32[1024,1024] broadcast(%14), dimensions={}
//   %16 = f32[1024,1024] add(%10, %15)
//   %17 = f32[1024,1024] multiply(%13, %16)
//   return %17
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const float* b0 = (const float*)tensors[0];
  float* b1 = (float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  #pragma omp simd
  for (long long r = first_row; r < last_row; ++r) {
    const float t1 = b0[r];
    const float t2 = (t1 * 0x1.0000000000000p-1f);
    const float t3 = (t1 * t1);
    const float t4 = (t3 * t1);
    const float t5 = (t4 * 0x1.6e4e260000000p-5f);
    const float t6 = (t1 + t5);
    const float t7 = (t6 * 0x1.9884540000000p-1f);
    const float t8 = stitch_tanh(t7);
    const float t9 = (t8 + 0x1.0000000000000p+0f);
    const float t10 = (t2 * t9);
    b1[r] = t10;
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 1048576, 7744, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(void*)inputs[0], outputs[0]};
  runtime->parallel_for(runtime, 136, 8018, stitch_kernel_phase0, all);
}
