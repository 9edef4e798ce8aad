// graph sum_f32_64x1000_1_exclusive {
//   %0 = f32[64,1000] parameter(), number=0
//   %1 = f32[] constant(), literal={0.0}
//   %2 = f32[64,1001] reduce_window(%0, %1), kind=sum, window={WindowDimension(size=1, stride=1, padding_low=0, padding_high=0, window_dilation=1, base_dilation=1),WindowDimension(size=1000, stride=1, padding_low=1000, padding_high=0, window_dilation=1, base_dilation=1)}
//   %3 = f32[64,1000] slice(%2), limit={64,1000}, start={0,0}, strides={1,1}
//   return %3
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    double total[1];
    for (int v = 0; v < 1; ++v) {
      total[0] = 0x0.0p+0f;
      b0[r * 1000] = 0x0.0p+0f;
    }
    for (int k_block = 0; k_block < 999; k_block += 1024) {
      const int k_end = k_block + 1024 < 999 ? k_block + 1024 : 999;
      int k_base = k_block;
#ifdef STITCH_SCANS
      StitchScan<StitchSum, float, double, true> scan2_state(total[0], (float)0x0.0p+0);
      for (; k_base + 16 <= k_end; k_base += 16) {
        __attribute__((aligned(64))) float scan2_lanes[16];
        #pragma omp simd
        for (int lane = 0; lane < 16; ++lane) {
          const int k = k_base + lane;
          const float t1 = b1[r * 1000 + k];
          scan2_lanes[lane] = t1;
        }
        scan2_state.step(scan2_lanes);
        #pragma omp simd
        for (int lane = 0; lane < 16; ++lane) {
          const int k = k_base + lane;
          const float scan2 = (float)scan2_lanes[lane];
          b0[r * 1000 + k + 1] = scan2;
        }
      }
      if (scan2_state.is_steady()) total[0] = scan2_state.total;
      else k_base = k_block;
#endif
      for (int k = k_base; k < k_end; ++k) {
        const float t1 = b1[r * 1000 + k];
        total[0] = (total[0] + t1);
        const float scan2 = (float)total[0];
        total[0] = __builtin_fabsf(scan2) < __builtin_inff() ? total[0] : (double)scan2;
        b0[r * 1000 + k + 1] = scan2;
      }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 64, 16, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {outputs[0], (void*)inputs[0]};
  runtime->parallel_for(runtime, 4, 8672, stitch_kernel_phase0, all);
}
