// graph max_pool_gradient {
//   %0 = f32[8,56,56,64] parameter(), number=0
//   %1 = f32[8,28,28,64] parameter(), number=1
//   %2 = f32[] constant(), literal={-inf}
//   %3 = f32[8,57,57,64] pad(%0, %2), high={0,0,0,0}, interior={0,0,0,0}, low={0,1,1,0}
//   %4 = f32[] constant(), literal={-inf}
//   %5 = f32[8,28,28,64] broadcast(%4), dimensions={}
//   %6 = s32[] constant(), literal={1}
//   %7 = s32[8,28,28,64] broadcast(%6), dimensions={}
//   %8 = s32[] constant(), literal={0}
//   %9 = s32[8,28,28,64] broadcast(%8), dimensions={}
//   %10 = s32[8,28,28,64] iota(), dimension=1
//   %11 = s32[] constant(), literal={1}
//   %12 = s32[8,28,28,64] broadcast(%11), dimensions={}
//   %13 = s32[] constant(), literal={2}
//   %14 = s32[8,28,28,64] broadcast(%13), dimensions={}
//   %15 = s32[8,28,28,64] multiply(%10, %14)
//   %16 = s32[8,28,28,64] subtract(%12, %15)
//   %17 = s32[8,28,28,64] maximum(%16, %9)
//   %18 = s32[] constant(), literal={4}
//   %19 = s32[8,28,28,64] broadcast(%18), dimensions={}
//   %20 = s32[8,28,28,64] multiply(%17, %19)
//   %21 = s32[8,28,28,64] add(%7, %20)
//   %22 = s32[8,28,28,64] iota(), dimension=2
//   %23 = s32[] constant(), literal={1}
//   %24 = s32[8,28,28,64] broadcast(%23), dimensions={}
//   %25 = s32[] constant(), literal={2}
//   %26 = s32[8,28,28,64] broadcast(%25), dimensions={}
//   %27 = s32[8,28,28,64] multiply(%22, %26)
//   %28 = s32[8,28,28,64] subtract(%24, %27)
//   %29 = s32[8,28,28,64] maximum(%28, %9)
//   %30 = s32[] constant(), literal={1}
//   %31 = s32[8,28,28,64] broadcast(%30), dimensions={}
//   %32 = s32[8,28,28,64] multiply(%29, %31)
//   %33 = s32[8,28,28,64] add(%21, %32)
//   %34 = f32[8,28,28,64] slice(%3), limit={8,55,55,64}, start={0,0,0,0}, strides={1,2,2,1}
//   %35 = pred[8,28,28,64] compare(%34, %5), direction=GT, total_order=False
//   %36 = s32[] constant(), literal={1}
//   %37 = s32[8,28,28,64] broadcast(%36), dimensions={}
//   %38 = s32[8,28,28,64] select(%35, %37, %33)
//   %39 = f32[8,28,28,64] select(%35, %34, %5)
//   %40 = f32[8,28,28,64] slice(%3), limit={8,55,56,64}, start={0,0,1,0}, strides={1,2,2,1}
//   %41 = pred[8,28,28,64] compare(%40, %39), direction=GT, total_order=False
//   %42 = s32[] constant(), literal={2}
//   %43 = s32[8,28,28,64] broadcast(%42), dimensions={}
//   %44 = s32[8,28,28,64] select(%41, %43, %38)
//   %45 = f32[8,28,28,64] select(%41, %40, %39)
//   %46 = f32[8,28,28,64] slice(%3), limit={8,55,57,64}, start={0,0,2,0}, strides={1,2,2,1}
//   %47 = pred[8,28,28,64] compare(%46, %45), direction=GT, total_order=False
//   %48 = s32[] constant(), literal={3}
//   %49 = s32[8,28,28,64] broadcast(%48), dimensions={}
//   %50 = s32[8,28,28,64] select(%47, %49, %44)
//   %51 = f32[8,28,28,64] select(%47, %46, %45)
//   %52 = f32[8,28,28,64] slice(%3), limit={8,56,55,64}, start={0,1,0,0}, strides={1,2,2,1}
//   %53 = pred[8,28,28,64] compare(%52, %51), direction=GT, total_order=False
//   %54 = s32[] constant(), literal={5}
//   %55 = s32[8,28,28,64] broadcast(%54), dimensions={}
//   %56 = s32[8,28,28,64] select(%53, %55, %50)
//   %57 = f32[8,28,28,64] select(%53, %52, %51)
//   %58 = f32[8,28,28,64] slice(%3), limit={8,56,56,64}, start={0,1,1,0}, strides={1,2,2,1}
//   %59 = pred[8,28,28,64] compare(%58, %57), direction=GT, total_order=False
//   %60 = s32[] constant(), literal={6}
//   %61 = s32[8,28,28,64] broadcast(%60), dimensions={}
//   %62 = s32[8,28,28,64] select(%59, %61, %56)
//   %63 = f32[8,28,28,64] select(%59, %58, %57)
//   %64 = f32[8,28,28,64] slice(%3), limit={8,56,57,64}, start={0,1,2,0}, strides={1,2,2,1}
//   %65 = pred[8,28,28,64] compare(%64, %63), direction=GT, total_order=False
//   %66 = s32[] constant(), literal={7}
//   %67 = s32[8,28,28,64] broadcast(%66), dimensions={}
//   %68 = s32[8,28,28,64] select(%65, %67, %62)
//   %69 = f32[8,28,28,64] select(%65, %64, %63)
//   %70 = f32[8,28,28,64] slice(%3), limit={8,57,55,64}, start={0,2,0,0}, strides={1,2,2,1}
//   %71 = pred[8,28,28,64] compare(%70, %69), direction=GT, total_order=False
//   %72 = s32[] constant(), literal={9}
//   %73 = s32[8,28,28,64] broadcast(%72), dimensions={}
//   %74 = s32[8,28,28,64] select(%71, %73, %68)
//   %75 = f32[8,28,28,64] select(%71, %70, %69)
//   %76 = f32[8,28,28,64] slice(%3), limit={8,57,56,64}, start={0,2,1,0}, strides={1,2,2,1}
//   %77 = pred[8,28,28,64] compare(%76, %75), direction=GT, total_order=False
//   %78 = s32[] constant(), literal={10}
//   %79 = s32[8,28,28,64] broadcast(%78), dimensions={}
//   %80 = s32[8,28,28,64] select(%77, %79, %74)
//   %81 = f32[8,28,28,64] select(%77, %76, %75)
//   %82 = f32[8,28,28,64] slice(%3), limit={8,57,57,64}, start={0,2,2,0}, strides={1,2,2,1}
//   %83 = pred[8,28,28,64] compare(%82, %81), direction=GT, total_order=False
//   %84 = s32[] constant(), literal={11}
//   %85 = s32[8,28,28,64] broadcast(%84), dimensions={}
//   %86 = s32[8,28,28,64] select(%83, %85, %80)
//   %87 = f32[8,28,28,64] select(%83, %82, %81)
//   %88 = s32[] constant(), literal={0}
//   %89 = f32[] constant(), literal={0.0}
//   %90 = f32[] constant(), literal={0.0}
//   %91 = f32[8,1,29,2,29,2,64,1] broadcast(%90), dimensions={}
//   %92 = s32[] constant(), literal={0}
//   %93 = s32[8,1,29,2,29,2,64,1] broadcast(%92), dimensions={}
//   %94 = s32[8,1,29,2,29,2,64,1] iota(), dimension=3
//   %95 = s32[] constant(), literal={4}
//   %96 = s32[8,1,29,2,29,2,64,1] broadcast(%95), dimensions={}
//   %97 = s32[8,1,29,2,29,2,64,1] multiply(%94, %96)
//   %98 = s32[8,1,29,2,29,2,64,1] add(%93, %97)
//   %99 = s32[8,1,29,2,29,2,64,1] iota(), dimension=5
//   %100 = s32[] constant(), literal={1}
//   %101 = s32[8,1,29,2,29,2,64,1] broadcast(%100), dimensions={}
//   %102 = s32[8,1,29,2,29,2,64,1] multiply(%99, %101)
//   %103 = s32[8,1,29,2,29,2,64,1] add(%98, %102)
//   %104 = s32[8,29,29,64] pad(%86, %88), high={0,1,1,0}, interior={0,0,0,0}, low={0,0,0,0}
//   %105 = s32[8,1,29,2,29,2,64,1] broadcast(%104), dimensions={0,2,4,6}
//   %106 = f32[8,29,29,64] pad(%1, %89), high={0,1,1,0}, interior={0,0,0,0}, low={0,0,0,0}
//   %107 = f32[8,1,29,2,29,2,64,1] broadcast(%106), dimensions={0,2,4,6}
//   %108 = s32[] constant(), literal={1}
//   %109 = s32[8,1,29,2,29,2,64,1] broadcast(%108), dimensions={}
//   %110 = s32[8,1,29,2,29,2,64,1] add(%103, %109)
//   %111 = pred[8,1,29,2,29,2,64,1] compare(%105, %110), direction=EQ, total_order=False
//   %112 = f32[8,1,29,2,29,2,64,1] select(%111, %107, %91)
//   %113 = s32[8,29,29,64] pad(%86, %88), high={0,1,0,0}, interior={0,0,0,0}, low={0,0,1,0}
//   %114 = s32[8,1,29,2,29,2,64,1] broadcast(%113), dimensions={0,2,4,6}
//   %115 = f32[8,29,29,64] pad(%1, %89), high={0,1,0,0}, interior={0,0,0,0}, low={0,0,1,0}
//   %116 = f32[8,1,29,2,29,2,64,1] broadcast(%115), dimensions={0,2,4,6}
//   %117 = s32[] constant(), literal={3}
//   %118 = s32[8,1,29,2,29,2,64,1] broadcast(%117), dimensions={}
//   %119 = s32[8,1,29,2,29,2,64,1] add(%103, %118)
//   %120 = pred[8,1,29,2,29,2,64,1] compare(%114, %119), direction=EQ, total_order=False
//   %121 = f32[8,1,29,2,29,2,64,1] select(%120, %116, %91)
//   %122 = f32[8,1,29,2,29,2,64,1] add(%112, %121)
//   %123 = s32[8,29,29,64] pad(%86, %88), high={0,0,1,0}, interior={0,0,0,0}, low={0,1,0,0}
//   %124 = s32[8,1,29,2,29,2,64,1] broadcast(%123), dimensions={0,2,4,6}
//   %125 = f32[8,29,29,64] pad(%1, %89), high={0,0,1,0}, interior={0,0,0,0}, low={0,1,0,0}
//   %126 = f32[8,1,29,2,29,2,64,1] broadcast(%125), dimensions={0,2,4,6}
//   %127 = s32[] constant(), literal={9}
//   %128 = s32[8,1,29,2,29,2,64,1] broadcast(%127), dimensions={}
//   %129 = s32[8,1,29,2,29,2,64,1] add(%103, %128)
//   %130 = pred[8,1,29,2,29,2,64,1] compare(%124, %129), direction=EQ, total_order=False
//   %131 = f32[8,1,29,2,29,2,64,1] select(%130, %126, %91)
//   %132 = f32[8,1,29,2,29,2,64,1] add(%122, %131)
//   %133 = s32[8,29,29,64] pad(%86, %88), high={0,0,0,0}, interior={0,0,0,0}, low={0,1,1,0}
//   %134 = s32[8,1,29,2,29,2,64,1] broadcast(%133), dimensions={0,2,4,6}
//   %135 = f32[8,29,29,64] pad(%1, %89), high={0,0,0,0}, interior={0,0,0,0}, low={0,1,1,0}
//   %136 = f32[8,1,29,2,29,2,64,1] broadcast(%135), dimensions={0,2,4,6}
//   %137 = s32[] constant(), literal={11}
//   %138 = s32[8,1,29,2,29,2,64,1] broadcast(%137), dimensions={}
//   %139 = s32[8,1,29,2,29,2,64,1] add(%103, %138)
//   %140 = pred[8,1,29,2,29,2,64,1] compare(%134, %139), direction=EQ, total_order=False
//   %141 = f32[8,1,29,2,29,2,64,1] select(%140, %136, %91)
//   %142 = f32[8,1,29,2,29,2,64,1] add(%132, %141)
//   %143 = f32[8,58,58,64] reshape(%142)
//   %144 = f32[8,56,56,64] slice(%143), limit={8,57,57,64}, start={0,1,1,0}, strides={1,1,1,1}
//   return %144
// }

static void stitch_kernel_nest0(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  int* __restrict b0 = (int*)tensors[0];
  const float* __restrict b1 = (const float*)tensors[1];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    const int t32 = (int)((r / 28 % 28));
    const int t33 = (int)((unsigned int)t32 * (unsigned int)(int)2ll);
    const int t34 = (int)((unsigned int)(int)1ll - (unsigned int)t33);
    const int t35 = (t34 > (int)0ll ? t34 : (int)0ll);
    const int t36 = (int)((unsigned int)t35 * (unsigned int)(int)4ll);
    const int t37 = (int)((unsigned int)(int)1ll + (unsigned int)t36);
    const int t38 = (int)((r % 28));
    const int t39 = (int)((unsigned int)t38 * (unsigned int)(int)2ll);
    const int t40 = (int)((unsigned int)(int)1ll - (unsigned int)t39);
    const int t41 = (t40 > (int)0ll ? t40 : (int)0ll);
    const int t42 = (int)((unsigned int)t41 * (unsigned int)(int)1ll);
    const int t43 = (int)((unsigned int)t37 + (unsigned int)t42);
    {
      const long long k64_1_start1_inside = (long long)((r / 28) * 7168 + (r % 28) * 128 + 3520);
      const long long k64_1_start1_anywhere = (((((r % 28) * 2 - 1) >= 0)) ? k64_1_start1_inside : 0ll);
      const long long k64_1_start1 = stitch_index(k64_1_start1_anywhere);
      const int k64_1_keep1 = (((((r % 28) * 2 - 1) >= 0)) ? (int)-1ll : (int)0ll);
      const float t4_fill = (((((r % 28) * 2 - 1) >= 0)) ? 0x0.0p+0f : -__builtin_inff());
      const long long k64_1_start2_inside = (long long)((r / 28) * 7168 + (r % 28) * 128 - 64);
      const long long k64_1_start2_anywhere = (((((r % 28) * 2 - 1) >= 0)) ? k64_1_start2_inside : 0ll);
      const long long k64_1_start2 = stitch_index(k64_1_start2_anywhere);
      const float t8_fill = (((((r % 28) * 2 - 1) >= 0)) ? 0x0.0p+0f : -__builtin_inff());
      const long long k64_1_start3_inside = (long long)((r / 28) * 7168 + (r % 28) * 128 - 3520);
      const long long k64_1_start3_anywhere = (((((r / 28 % 28) * 2 - 1) >= 0)) ? k64_1_start3_inside : 0ll);
      const long long k64_1_start3 = stitch_index(k64_1_start3_anywhere);
      const int k64_1_keep2 = (((((r / 28 % 28) * 2 - 1) >= 0)) ? (int)-1ll : (int)0ll);
      const float t10_fill = (((((r / 28 % 28) * 2 - 1) >= 0)) ? 0x0.0p+0f : -__builtin_inff());
      const long long k64_1_start4_inside = (long long)((r / 28) * 7168 + (r % 28) * 128 - 3584);
      const long long k64_1_start4_anywhere = (((((r / 28 % 28) * 2 - 1) >= 0)) ? k64_1_start4_inside : 0ll);
      const long long k64_1_start4 = stitch_index(k64_1_start4_anywhere);
      const float t12_fill = (((((r / 28 % 28) * 2 - 1) >= 0)) ? 0x0.0p+0f : -__builtin_inff());
      const long long k64_1_start5_inside = (long long)((r / 28) * 7168 + (r % 28) * 128 - 3648);
      const long long k64_1_start5_anywhere = (((((r / 28 % 28) * 2 - 1) >= 0) & (((r % 28) * 2 - 1) >= 0)) ? k64_1_start5_inside : 0ll);
      const long long k64_1_start5 = stitch_index(k64_1_start5_anywhere);
      const int k64_1_keep3 = (((((r / 28 % 28) * 2 - 1) >= 0) & (((r % 28) * 2 - 1) >= 0)) ? (int)-1ll : (int)0ll);
      const float t14_fill = (((((r / 28 % 28) * 2 - 1) >= 0) & (((r % 28) * 2 - 1) >= 0)) ? 0x0.0p+0f : -__builtin_inff());
      #pragma omp simd
      for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
        const float t1 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 3648];
        const float t2 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 3584];
        const float t3_read = b1[k64_1 + k64_1_start1];
        const float t3 = stitch_masked(t3_read, k64_1_keep1);
        const float t4 = stitch_either(t3, t4_fill);
        const float t5 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 64];
        const float t6 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1];
        const float t7_read = b1[k64_1 + k64_1_start2];
        const float t7 = stitch_masked(t7_read, k64_1_keep1);
        const float t8 = stitch_either(t7, t8_fill);
        const float t9_read = b1[k64_1 + k64_1_start3];
        const float t9 = stitch_masked(t9_read, k64_1_keep2);
        const float t10 = stitch_either(t9, t10_fill);
        const float t11_read = b1[k64_1 + k64_1_start4];
        const float t11 = stitch_masked(t11_read, k64_1_keep2);
        const float t12 = stitch_either(t11, t12_fill);
        const float t13_read = b1[k64_1 + k64_1_start5];
        const float t13 = stitch_masked(t13_read, k64_1_keep3);
        const float t14 = stitch_either(t13, t14_fill);
        const bool t15 = (t14 > -__builtin_inff());
        const float t16 = (t15 ? t14 : -__builtin_inff());
        const bool t17 = (t12 > t16);
        const float t18 = (t17 ? t12 : t16);
        const bool t19 = (t10 > t18);
        const float t20 = (t19 ? t10 : t18);
        const bool t21 = (t8 > t20);
        const float t22 = (t21 ? t8 : t20);
        const bool t23 = (t6 > t22);
        const float t24 = (t23 ? t6 : t22);
        const bool t25 = (t5 > t24);
        const float t26 = (t25 ? t5 : t24);
        const bool t27 = (t4 > t26);
        const float t28 = (t27 ? t4 : t26);
        const bool t29 = (t2 > t28);
        const float t30 = (t29 ? t2 : t28);
        const bool t31 = (t1 > t30);
        const int t44 = (t15 ? (int)1ll : t43);
        const int t45 = (t17 ? (int)2ll : t44);
        const int t46 = (t19 ? (int)3ll : t45);
        const int t47 = (t21 ? (int)5ll : t46);
        const int t48 = (t23 ? (int)6ll : t47);
        const int t49 = (t25 ? (int)7ll : t48);
        const int t50 = (t27 ? (int)9ll : t49);
        const int t51 = (t29 ? (int)10ll : t50);
        const int t52 = (t31 ? (int)11ll : t51);
        b0[r * 64 + k64_1] = t52;
      }
    }
  }
}

static void stitch_kernel_nest1(void* const* tensors, long long rows, long long rows_per_task, long long first_task, long long last_task) {
  float* __restrict b0 = (float*)tensors[0];
  const int* __restrict b1 = (const int*)tensors[1];
  const float* __restrict b2 = (const float*)tensors[2];
  const long long first_row = first_task * rows_per_task;
  long long last_row = last_task * rows_per_task;
  last_row = last_row < rows ? last_row : rows;
  for (long long r = first_row; r < last_row; ++r) {
    const int t3 = (int)((((r / 56 % 56) + 1) % 2));
    const int t4 = (int)((unsigned int)t3 * (unsigned int)(int)4ll);
    const int t5 = (int)((unsigned int)(int)0ll + (unsigned int)t4);
    const int t6 = (int)((((r % 56) + 1) % 2));
    const int t7 = (int)((unsigned int)t6 * (unsigned int)(int)1ll);
    const int t8 = (int)((unsigned int)t5 + (unsigned int)t7);
    const int t9 = (int)((unsigned int)t8 + (unsigned int)(int)1ll);
    const int t16 = (int)((unsigned int)t8 + (unsigned int)(int)3ll);
    const int t24 = (int)((unsigned int)t8 + (unsigned int)(int)9ll);
    const int t32 = (int)((unsigned int)t8 + (unsigned int)(int)11ll);
    {
      const long long k64_1_start1_inside = (long long)((r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64);
      const long long k64_1_start1_anywhere = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? k64_1_start1_inside : 0ll);
      const long long k64_1_start1 = stitch_index(k64_1_start1_anywhere);
      const int k64_1_keep1 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? (int)-1ll : (int)0ll);
      const int t2_fill = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? (int)0ll : (int)0ll);
      const float t12_fill = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? 0x0.0p+0f : 0x0.0p+0f);
      const long long k64_1_start2_inside = (long long)((r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 - 64);
      const long long k64_1_start2_anywhere = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? k64_1_start2_inside : 0ll);
      const long long k64_1_start2 = stitch_index(k64_1_start2_anywhere);
      const int k64_1_keep2 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? (int)-1ll : (int)0ll);
      const int t15_fill = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? (int)0ll : (int)0ll);
      const float t19_fill = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? 0x0.0p+0f : 0x0.0p+0f);
      const long long k64_1_start3_inside = (long long)((r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 - 1792);
      const long long k64_1_start3_anywhere = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? k64_1_start3_inside : 0ll);
      const long long k64_1_start3 = stitch_index(k64_1_start3_anywhere);
      const int k64_1_keep3 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? (int)-1ll : (int)0ll);
      const int t23_fill = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? (int)0ll : (int)0ll);
      const float t27_fill = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? 0x0.0p+0f : 0x0.0p+0f);
      const long long k64_1_start4_inside = (long long)((r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 - 1856);
      const long long k64_1_start4_anywhere = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? k64_1_start4_inside : 0ll);
      const long long k64_1_start4 = stitch_index(k64_1_start4_anywhere);
      const int k64_1_keep4 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? (int)-1ll : (int)0ll);
      const int t31_fill = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? (int)0ll : (int)0ll);
      const float t35_fill = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? 0x0.0p+0f : 0x0.0p+0f);
      #pragma omp simd
      for (int k64_1 = 0; k64_1 < 64; ++k64_1) {
        const int t1_read = b1[k64_1 + k64_1_start1];
        const int t1 = stitch_masked(t1_read, k64_1_keep1);
        const int t2 = stitch_either(t1, t2_fill);
        const bool t10 = (t2 == t9);
        const float t11_read = b2[k64_1 + k64_1_start1];
        const float t11 = stitch_masked(t11_read, k64_1_keep1);
        const float t12 = stitch_either(t11, t12_fill);
        const float t13 = (t10 ? t12 : 0x0.0p+0f);
        const int t14_read = b1[k64_1 + k64_1_start2];
        const int t14 = stitch_masked(t14_read, k64_1_keep2);
        const int t15 = stitch_either(t14, t15_fill);
        const bool t17 = (t15 == t16);
        const float t18_read = b2[k64_1 + k64_1_start2];
        const float t18 = stitch_masked(t18_read, k64_1_keep2);
        const float t19 = stitch_either(t18, t19_fill);
        const float t20 = (t17 ? t19 : 0x0.0p+0f);
        const float t21 = (t13 + t20);
        const int t22_read = b1[k64_1 + k64_1_start3];
        const int t22 = stitch_masked(t22_read, k64_1_keep3);
        const int t23 = stitch_either(t22, t23_fill);
        const bool t25 = (t23 == t24);
        const float t26_read = b2[k64_1 + k64_1_start3];
        const float t26 = stitch_masked(t26_read, k64_1_keep3);
        const float t27 = stitch_either(t26, t27_fill);
        const float t28 = (t25 ? t27 : 0x0.0p+0f);
        const float t29 = (t21 + t28);
        const int t30_read = b1[k64_1 + k64_1_start4];
        const int t30 = stitch_masked(t30_read, k64_1_keep4);
        const int t31 = stitch_either(t30, t31_fill);
        const bool t33 = (t31 == t32);
        const float t34_read = b2[k64_1 + k64_1_start4];
        const float t34 = stitch_masked(t34_read, k64_1_keep4);
        const float t35 = stitch_either(t34, t35_fill);
        const float t36 = (t33 ? t35 : 0x0.0p+0f);
        const float t37 = (t29 + t36);
        b0[r * 64 + k64_1] = t37;
      }
    }
  }
}

static void stitch_kernel_phase0(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[0], all[1]};
  stitch_kernel_nest0(tensors, 6272, 72, first, last);
}

static void stitch_kernel_phase1(void* argument, long long first, long long last) {
  void* const* all = (void* const*)argument;
  void* const tensors[] = {all[2], all[0], all[3]};
  stitch_kernel_nest1(tensors, 25088, 111, first, last);
}

extern "C" STITCH_EXPORT void stitch_kernel(const void* const* inputs, void* const* outputs, void* scratch, StitchRuntime* runtime) {
  (void)inputs; (void)outputs; (void)scratch; (void)runtime;
  void* all[] = {(char*)scratch + 0, (void*)inputs[0], outputs[0], (void*)inputs[1]};
  runtime->parallel_for(runtime, 88, 8062, stitch_kernel_phase0, all);
  runtime->parallel_for(runtime, 227, 8010, stitch_kernel_phase1, all);
}
