// graph drawn_dropout {
//   %0 = u64[3] parameter(), number=0
//   %1 = f32[1024,256] parameter(), number=1
//   %2 = f32[256] parameter(), number=2
//   %3 = f32[1024,256] parameter(), number=3
//   %4 = u64[1] slice(%0), limit={1}, start={0}, strides={1}
//   %5 = u64[] reshape(%4)
//   %6 = u64[1024,256] broadcast(%5), dimensions={}
//   %7 = u64[1] slice(%0), limit={2}, start={1}, strides={1}
//   %8 = u64[] reshape(%7)
//   %9 = u64[1024,256] broadcast(%8), dimensions={}
//   %10 = u64[1] slice(%0), limit={3}, start={2}, strides={1}
//   %11 = u64[] reshape(%10)
//   %12 = u64[1024,256] broadcast(%11), dimensions={}
//   %13 = u64[262144] iota(), dimension=0
//   %14 = u64[1024,256] reshape(%13)
//   %15 = u32[1024,256] philox(%6, %9, %12, %14)
//   %16 = u32[] constant(), literal={8388607}
//   %17 = u32[1024,256] broadcast(%16), dimensions={}
//   %18 = u32[1024,256] and(%15, %17)
//   %19 = f32[1024,256] convert(%18)
//   %20 = f32[] constant(), literal={1.1920929e-07}
//   %21 = f32[1024,256] broadcast(%20), dimensions={}
//   %22 = f32[1024,256] multiply(%19, %21)
//   %23 = f32[] constant(), literal={0.1}
//   %24 = f32[1024,256] broadcast(%23), dimensions={}
//   %25 = pred[1024,256] compare(%22, %24), direction=GE, total_order=False
//   %26 = f32[1024,256] broadcast(%2), dimensions={1}
//   %27 = f32[1024,256] add(%1, %26)
//   %28 = f32[] constant(), literal={1.1111112}
//   %29 = f32[1024,256] broadcast(%28), dimensions={}
//   %30 = f32[1024,256] multiply(%27, %29)
//   %31 = f32[] constant(), literal={0.0}
//   %32 = f32[1024,256] broadcast(%31), dimensions={}
//   %33 = f32[1024,256] select(%25, %30, %32)
//   %34 = f32[1024,256] add(%33, %3)
//   return %34, %25
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  unsigned char* __restrict b0 = (unsigned char*)tensors[0];
  float* b1 = (float*)tensors[1];
  const unsigned long long* __restrict b2 = (const unsigned long long*)tensors[2];
  const float* b3 = (const float*)tensors[3];
  const float* __restrict b4 = (const float*)tensors[4];
  const float* b5 = (const float*)tensors[5];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  const unsigned long long t1 = b2[0];
  const unsigned long long t2 = b2[1];
  const unsigned long long t3 = b2[2];
  for (long long r = first_row; r < last_row; ++r) {
    for (int k256_1_base = 0; k256_1_base < 256; k256_1_base += 512) {
      const int block = (int)(256 - k256_1_base < 512 ? 256 - k256_1_base : 512);
      unsigned t5_room[580];
      const unsigned* t5_words = t5_room;
      {
        const int k256_1 = k256_1_base;
        t5_words = stitch_philox_words(t5_room, block, t1, t2, t3, (StitchWide)(r * 256 + k256_1));
      }
      #pragma omp simd
      for (int lane = 0; lane < block; ++lane) {
        const int k256_1 = k256_1_base + lane;
        const unsigned long long t4 = (unsigned long long)(r * 256 + k256_1);
        const unsigned int t5 = t5_words[lane];
        const unsigned int t6 = (unsigned int)(t5 & (unsigned int)8388607ll);
        const float t7 = (float)t6;
        const float t8 = (t7 * 0x1.0000000000000p-23f);
        const bool t9 = (t8 >= 0x1.99999a0000000p-4f);
        const float t10 = b3[r * 256 + k256_1];
        const float t11 = b4[k256_1];
        const float t12 = (t10 + t11);
        const float t13 = (t12 * 0x1.1c71c80000000p+0f);
        const float t14 = (t9 ? t13 : 0x0.0p+0f);
        const float t15 = b5[r * 256 + k256_1];
        const float t16 = (t14 + t15);
        b0[r * 256 + k256_1] = (unsigned char)(t9);
        b1[r * 256 + k256_1] = t16;
      }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1], all[2], all[3], all[4], all[5]};
  stitch_kernel_nest0(tensors, 1024, 18, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[1], outputs[0], (void*)inputs[0], (void*)inputs[1], (void*)inputs[2], (void*)inputs[3]};
  runtime->parallel_for(runtime, 57, 8368, stitch_kernel_phase0, all);
}
