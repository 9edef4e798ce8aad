// graph embedding {
//   %0 = f32[8000,256] parameter(), number=0
//   %1 = s32[1024] parameter(), number=1
//   %2 = f32[1024,256] parameter(), number=2
//   %3 = f32[1024,256] gather(%0, %1), gather=GatherDimensions(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=(1, 256))
//   %4 = f32[1024,256] add(%3, %2)
//   return %4
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* b0 = (float*)tensors[0];
  const int* __restrict b1 = (const int*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  const float* b3 = (const float*)tensors[3];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    const int t1 = b1[r];
    const int start_7841cb0fd6dc = stitch_clamp_to_int(t1, 7999);
    #pragma omp simd
    for (int k256_1 = 0; k256_1 < 256; ++k256_1) {
      const float t2 = b2[start_7841cb0fd6dc * 256 + k256_1];
      const float t3 = b3[r * 256 + k256_1];
      const float t4 = (t2 + t3);
      b0[r * 256 + k256_1] = t4;
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3]};
  stitch_kernel_nest0(tensors, 1024, 38, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[1], (void*)inputs[0], (void*)inputs[2]};
  runtime->parallel_for(runtime, 27, 8037, stitch_kernel_phase0, all);
}
