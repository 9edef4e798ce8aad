// graph embedding_gradient {
//   %0 = s32[64] parameter(), number=0
//   %1 = f32[64,256] parameter(), number=1
//   %2 = f32[] constant(), literal={0.0}
//   %3 = f32[1000,256] broadcast(%2), dimensions={}
//   %4 = f32[] constant(), literal={0.5}
//   %5 = f32[64,256] broadcast(%4), dimensions={}
//   %6 = f32[64,256] multiply(%1, %5)
//   %7 = f32[1000,256] scatter(%3, %0, %6), kind=sum, scatter=GatherDimensions(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1, slice_sizes=())
//   return %7
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  #pragma omp simd
  for (long long r = first_row; r < last_row; ++r) {
    b0[r] = 0x0.0p+0f;
  }
}

static void stitch_kernel_nest1(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  const int* __restrict b0 = (const int*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  float* __restrict b2 = (float*)tensors[2];
  int zero = 0; __asm__("" : "+r"(zero));
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    for (int b = 0; b < 64; ++b) {
      const int t1 = b0[b];
      const long long start_5d41e41c38c7 = stitch_index(t1);
      if ((((start_5d41e41c38c7) >= 0 + zero) & ((start_5d41e41c38c7) < 1000 + zero))) {
        #pragma omp simd
        for (int w = 0; w < 256; ++w) {
          const float t2 = b1[b * 256 + w];
          const float t3 = (t2 * 0x1.0000000000000p-1f);
          b2[start_5d41e41c38c7 * 256 + (long long)w] = ((float)b2[start_5d41e41c38c7 * 256 + (long long)w] + t3);
        }
      }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0]};
  stitch_kernel_nest0(tensors, 256000, 32000, first, last);
}

static void stitch_kernel_phase1(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[1], all[2], all[0]};
  stitch_kernel_nest1(tensors, 1, 1, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[0], (void*)inputs[1]};
  runtime->parallel_for(runtime, 8, 8000, stitch_kernel_phase0, all);
  stitch_kernel_phase1(all, 0, 1);
}
