// graph max_pool_gradient {
//   %0 = f32[8,56,56,64] parameter(), number=0
//   %1 = f32[8,28,28,64] parameter(), number=1
//   %2 = f32[] constant(), literal={-inf}
//   %3 = f32[8,57,57,64] pad(%0, %2), high={0,0,0,0}, interior={0,0,0,0}, low={0,1,1,0}
//   %4 = f32[8,28,28,64] broadcast(%2), dimensions={}
//   %5 = s32[] constant(), literal={1}
//   %6 = s32[8,28,28,64] broadcast(%5), dimensions={}
//   %7 = s32[] constant(), literal={0}
//   %8 = s32[8,28,28,64] broadcast(%7), dimensions={}
//   %9 = s32[8,28,28,64] iota(), dimension=1
//   %10 = s32[] constant(), literal={1}
//   %11 = s32[8,28,28,64] broadcast(%10), dimensions={}
//   %12 = s32[] constant(), literal={2}
//   %13 = s32[8,28,28,64] broadcast(%12), dimensions={}
//   %14 = s32[8,28,28,64] multiply(%9, %13)
//   %15 = s32[8,28,28,64] subtract(%11, %14)
//   %16 = s32[8,28,28,64] maximum(%15, %8)
//   %17 = s32[] constant(), literal={4}
//   %18 = s32[8,28,28,64] broadcast(%17), dimensions={}
//   %19 = s32[8,28,28,64] multiply(%16, %18)
//   %20 = s32[8,28,28,64] add(%6, %19)
//   %21 = s32[8,28,28,64] iota(), dimension=2
//   %22 = s32[] constant(), literal={1}
//   %23 = s32[8,28,28,64] broadcast(%22), dimensions={}
//   %24 = s32[] constant(), literal={2}
//   %25 = s32[8,28,28,64] broadcast(%24), dimensions={}
//   %26 = s32[8,28,28,64] multiply(%21, %25)
//   %27 = s32[8,28,28,64] subtract(%23, %26)
//   %28 = s32[8,28,28,64] maximum(%27, %8)
//   %29 = s32[] constant(), literal={1}
//   %30 = s32[8,28,28,64] broadcast(%29), dimensions={}
//   %31 = s32[8,28,28,64] multiply(%28, %30)
//   %32 = s32[8,28,28,64] add(%20, %31)
//   %33 = f32[8,28,28,64] slice(%3), limit={8,55,55,64}, start={0,0,0,0}, strides={1,2,2,1}
//   %34 = pred[8,28,28,64] compare(%33, %4), direction=GT, total_order=False
//   %35 = s32[] constant(), literal={1}
//   %36 = s32[8,28,28,64] broadcast(%35), dimensions={}
//   %37 = s32[8,28,28,64] select(%34, %36, %32)
//   %38 = f32[8,28,28,64] select(%34, %33, %4)
//   %39 = f32[8,28,28,64] slice(%3), limit={8,55,56,64}, start={0,0,1,0}, strides={1,2,2,1}
//   %40 = pred[8,28,28,64] compare(%39, %38), direction=GT, total_order=False
//   %41 = s32[] constant(), literal={2}
//   %42 = s32[8,28,28,64] broadcast(%41), dimensions={}
//   %43 = s32[8,28,28,64] select(%40, %42, %37)
//   %44 = f32[8,28,28,64] select(%40, %39, %38)
//   %45 = f32[8,28,28,64] slice(%3), limit={8,55,57,64}, start={0,0,2,0}, strides={1,2,2,1}
//   %46 = pred[8,28,28,64] compare(%45, %44), direction=GT, total_order=False
//   %47 = s32[] constant(), literal={3}
//   %48 = s32[8,28,28,64] broadcast(%47), dimensions={}
//   %49 = s32[8,28,28,64] select(%46, %48, %43)
//   %50 = f32[8,28,28,64] select(%46, %45, %44)
//   %51 = f32[8,28,28,64] slice(%3), limit={8,56,55,64}, start={0,1,0,0}, strides={1,2,2,1}
//   %52 = pred[8,28,28,64] compare(%51, %50), direction=GT, total_order=False
//   %53 = s32[] constant(), literal={5}
//   %54 = s32[8,28,28,64] broadcast(%53), dimensions={}
//   %55 = s32[8,28,28,64] select(%52, %54, %49)
//   %56 = f32[8,28,28,64] select(%52, %51, %50)
//   %57 = f32[8,28,28,64] slice(%3), limit={8,56,56,64}, start={0,1,1,0}, strides={1,2,2,1}
//   %58 = pred[8,28,28,64] compare(%57, %56), direction=GT, total_order=False
//   %59 = s32[] constant(), literal={6}
//   %60 = s32[8,28,28,64] broadcast(%59), dimensions={}
//   %61 = s32[8,28,28,64] select(%58, %60, %55)
//   %62 = f32[8,28,28,64] select(%58, %57, %56)
//   %63 = f32[8,28,28,64] slice(%3), limit={8,56,57,64}, start={0,1,2,0}, strides={1,2,2,1}
//   %64 = pred[8,28,28,64] compare(%63, %62), direction=GT, total_order=False
//   %65 = s32[] constant(), literal={7}
//   %66 = s32[8,28,28,64] broadcast(%65), dimensions={}
//   %67 = s32[8,28,28,64] select(%64, %66, %61)
//   %68 = f32[8,28,28,64] select(%64, %63, %62)
//   %69 = f32[8,28,28,64] slice(%3), limit={8,57,55,64}, start={0,2,0,0}, strides={1,2,2,1}
//   %70 = pred[8,28,28,64] compare(%69, %68), direction=GT, total_order=False
//   %71 = s32[] constant(), literal={9}
//   %72 = s32[8,28,28,64] broadcast(%71), dimensions={}
//   %73 = s32[8,28,28,64] select(%70, %72, %67)
//   %74 = f32[8,28,28,64] select(%70, %69, %68)
//   %75 = f32[8,28,28,64] slice(%3), limit={8,57,56,64}, start={0,2,1,0}, strides={1,2,2,1}
//   %76 = pred[8,28,28,64] compare(%75, %74), direction=GT, total_order=False
//   %77 = s32[] constant(), literal={10}
//   %78 = s32[8,28,28,64] broadcast(%77), dimensions={}
//   %79 = s32[8,28,28,64] select(%76, %78, %73)
//   %80 = f32[8,28,28,64] select(%76, %75, %74)
//   %81 = f32[8,28,28,64] slice(%3), limit={8,57,57,64}, start={0,2,2,0}, strides={1,2,2,1}
//   %82 = pred[8,28,28,64] compare(%81, %80), direction=GT, total_order=False
//   %83 = s32[] constant(), literal={11}
//   %84 = s32[8,28,28,64] broadcast(%83), dimensions={}
//   %85 = s32[8,28,28,64] select(%82, %84, %79)
//   %86 = f32[8,28,28,64] select(%82, %81, %80)
//   %87 = s32[] constant(), literal={0}
//   %88 = f32[] constant(), literal={0.0}
//   %89 = f32[8,1,29,2,29,2,64,1] broadcast(%88), dimensions={}
//   %90 = s32[] constant(), literal={0}
//   %91 = s32[8,1,29,2,29,2,64,1] broadcast(%90), dimensions={}
//   %92 = s32[8,1,29,2,29,2,64,1] iota(), dimension=3
//   %93 = s32[] constant(), literal={4}
//   %94 = s32[8,1,29,2,29,2,64,1] broadcast(%93), dimensions={}
//   %95 = s32[8,1,29,2,29,2,64,1] multiply(%92, %94)
//   %96 = s32[8,1,29,2,29,2,64,1] add(%91, %95)
//   %97 = s32[8,1,29,2,29,2,64,1] iota(), dimension=5
//   %98 = s32[] constant(), literal={1}
//   %99 = s32[8,1,29,2,29,2,64,1] broadcast(%98), dimensions={}
//   %100 = s32[8,1,29,2,29,2,64,1] multiply(%97, %99)
//   %101 = s32[8,1,29,2,29,2,64,1] add(%96, %100)
//   %102 = s32[8,29,29,64] pad(%85, %87), high={0,1,1,0}, interior={0,0,0,0}, low={0,0,0,0}
//   %103 = s32[8,1,29,2,29,2,64,1] broadcast(%102), dimensions={0,2,4,6}
//   %104 = f32[8,29,29,64] pad(%1, %88), high={0,1,1,0}, interior={0,0,0,0}, low={0,0,0,0}
//   %105 = f32[8,1,29,2,29,2,64,1] broadcast(%104), dimensions={0,2,4,6}
//   %106 = s32[] constant(), literal={1}
//   %107 = s32[8,1,29,2,29,2,64,1] broadcast(%106), dimensions={}
//   %108 = s32[8,1,29,2,29,2,64,1] add(%101, %107)
//   %109 = pred[8,1,29,2,29,2,64,1] compare(%103, %108), direction=EQ, total_order=False
//   %110 = f32[8,1,29,2,29,2,64,1] select(%109, %105, %89)
//   %111 = s32[8,29,29,64] pad(%85, %87), high={0,1,0,0}, interior={0,0,0,0}, low={0,0,1,0}
//   %112 = s32[8,1,29,2,29,2,64,1] broadcast(%111), dimensions={0,2,4,6}
//   %113 = f32[8,29,29,64] pad(%1, %88), high={0,1,0,0}, interior={0,0,0,0}, low={0,0,1,0}
//   %114 = f32[8,1,29,2,29,2,64,1] broadcast(%113), dimensions={0,2,4,6}
//   %115 = s32[] constant(), literal={3}
//   %116 = s32[8,1,29,2,29,2,64,1] broadcast(%115), dimensions={}
//   %117 = s32[8,1,29,2,29,2,64,1] add(%101, %116)
//   %118 = pred[8,1,29,2,29,2,64,1] compare(%112, %117), direction=EQ, total_order=False
//   %119 = f32[8,1,29,2,29,2,64,1] select(%118, %114, %89)
//   %120 = f32[8,1,29,2,29,2,64,1] add(%110, %119)
//   %121 = s32[8,29,29,64] pad(%85, %87), high={0,0,1,0}, interior={0,0,0,0}, low={0,1,0,0}
//   %122 = s32[8,1,29,2,29,2,64,1] broadcast(%121), dimensions={0,2,4,6}
//   %123 = f32[8,29,29,64] pad(%1, %88), high={0,0,1,0}, interior={0,0,0,0}, low={0,1,0,0}
//   %124 = f32[8,1,29,2,29,2,64,1] broadcast(%123), dimensions={0,2,4,6}
//   %125 = s32[] constant(), literal={9}
//   %126 = s32[8,1,29,2,29,2,64,1] broadcast(%125), dimensions={}
//   %127 = s32[8,1,29,2,29,2,64,1] add(%101, %126)
//   %128 = pred[8,1,29,2,29,2,64,1] compare(%122, %127), direction=EQ, total_order=False
//   %129 = f32[8,1,29,2,29,2,64,1] select(%128, %124, %89)
//   %130 = f32[8,1,29,2,29,2,64,1] add(%120, %129)
//   %131 = s32[8,29,29,64] pad(%85, %87), high={0,0,0,0}, interior={0,0,0,0}, low={0,1,1,0}
//   %132 = s32[8,1,29,2,29,2,64,1] broadcast(%131), dimensions={0,2,4,6}
//   %133 = f32[8,29,29,64] pad(%1, %88), high={0,0,0,0}, interior={0,0,0,0}, low={0,1,1,0}
//   %134 = f32[8,1,29,2,29,2,64,1] broadcast(%133), dimensions={0,2,4,6}
//   %135 = s32[] constant(), literal={11}
//   %136 = s32[8,1,29,2,29,2,64,1] broadcast(%135), dimensions={}
//   %137 = s32[8,1,29,2,29,2,64,1] add(%101, %136)
//   %138 = pred[8,1,29,2,29,2,64,1] compare(%132, %137), direction=EQ, total_order=False
//   %139 = f32[8,1,29,2,29,2,64,1] select(%138, %134, %89)
//   %140 = f32[8,1,29,2,29,2,64,1] add(%130, %139)
//   %141 = f32[8,58,58,64] reshape(%140)
//   %142 = f32[8,56,56,64] slice(%141), limit={8,57,57,64}, start={0,1,1,0}, strides={1,1,1,1}
//   return %142
// }

// 320 blocks of 256 threads, 0 bytes of shared memory

struct stitch_kernel_Tensors { void* p[4]; };

static __device__ __forceinline__ void stitch_kernel_nest0(void* p0, void* p1, const int work) {
  STITCH_GLOBAL(int, b0, p0, 401408);
  STITCH_GLOBAL_CONST(float, b1, p1, 1605632);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work * 8 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
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
    for (int k64_1 = thread; k64_1 < 64; k64_1 += 32) {
      const float t1 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 3648];
      const float t2 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 3584];
      const float t3 = (((((r % 28) * 2 - 1) >= 0)) ? b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 3520] : (float)0);
      const float t4 = (((((r % 28) * 2 - 1) >= 0)) ? t3 : -__builtin_inff());
      const float t5 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 + 64];
      const float t6 = b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1];
      const float t7 = (((((r % 28) * 2 - 1) >= 0)) ? b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 - 64] : (float)0);
      const float t8 = (((((r % 28) * 2 - 1) >= 0)) ? t7 : -__builtin_inff());
      const float t9 = (((((r / 28 % 28) * 2 - 1) >= 0)) ? b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 - 3520] : (float)0);
      const float t10 = (((((r / 28 % 28) * 2 - 1) >= 0)) ? t9 : -__builtin_inff());
      const float t11 = (((((r / 28 % 28) * 2 - 1) >= 0)) ? b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 - 3584] : (float)0);
      const float t12 = (((((r / 28 % 28) * 2 - 1) >= 0)) ? t11 : -__builtin_inff());
      const float t13 = (((((r / 28 % 28) * 2 - 1) >= 0) & (((r % 28) * 2 - 1) >= 0)) ? b1[(r / 28) * 7168 + (r % 28) * 128 + k64_1 - 3648] : (float)0);
      const float t14 = (((((r / 28 % 28) * 2 - 1) >= 0) & (((r % 28) * 2 - 1) >= 0)) ? t13 : -__builtin_inff());
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

static __device__ __forceinline__ void stitch_kernel_nest1(void* p0, void* p1, void* p2, const int work) {
  STITCH_GLOBAL(float, b0, p0, 1605632);
  STITCH_GLOBAL(int, b1, p1, 401408);
  STITCH_GLOBAL_CONST(float, b2, p2, 401408);
  const int thread = threadIdx.x % 32, group = threadIdx.x / 32;
  const int task = work * 8 + group;
  const int first_row = task * 1;
  const int last_row = first_row + 1;
  for (int r = first_row; r < last_row; ++r) {
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
    for (int k64_1 = thread; k64_1 < 64; k64_1 += 32) {
      const int t1 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? b1[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1] : (int)0);
      const int t2 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? t1 : (int)0ll);
      const bool t10 = (t2 == t9);
      const float t11 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? b2[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1] : (float)0);
      const float t12 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2)) < 28)) ? t11 : 0x0.0p+0f);
      const float t13 = (t10 ? t12 : 0x0.0p+0f);
      const int t14 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? b1[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1 - 64] : (int)0);
      const int t15 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? t14 : (int)0ll);
      const bool t17 = (t15 == t16);
      const float t18 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? b2[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1 - 64] : (float)0);
      const float t19 = (((((((r / 56 % 56) + 1) / 2)) < 28) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? t18 : 0x0.0p+0f);
      const float t20 = (t17 ? t19 : 0x0.0p+0f);
      const float t21 = (t13 + t20);
      const int t22 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? b1[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1 - 1792] : (int)0);
      const int t23 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? t22 : (int)0ll);
      const bool t25 = (t23 == t24);
      const float t26 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? b2[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1 - 1792] : (float)0);
      const float t27 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2)) < 28)) ? t26 : 0x0.0p+0f);
      const float t28 = (t25 ? t27 : 0x0.0p+0f);
      const float t29 = (t21 + t28);
      const int t30 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? b1[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1 - 1856] : (int)0);
      const int t31 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? t30 : (int)0ll);
      const bool t33 = (t31 == t32);
      const float t34 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? b2[(r / 3136) * 50176 + (((r / 56 % 56) + 1) / 2) * 1792 + (((r % 56) + 1) / 2) * 64 + k64_1 - 1856] : (float)0);
      const float t35 = (((((((r / 56 % 56) + 1) / 2) - 1) >= 0) & (((((r % 56) + 1) / 2) - 1) >= 0)) ? t34 : 0x0.0p+0f);
      const float t36 = (t33 ? t35 : 0x0.0p+0f);
      const float t37 = (t29 + t36);
      b0[r * 64 + k64_1] = t37;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
stitch_kernel(const __grid_constant__ stitch_kernel_Tensors tensors, unsigned* semaphore) {
  for (int work = blockIdx.x; work < 784; work += gridDim.x) {
    {
      stitch_kernel_nest0((char*)tensors.p[3] + 0, tensors.p[0], work);
    }
  }
  stitch_grid_barrier(semaphore);
  for (int work = blockIdx.x; work < 3136; work += gridDim.x) {
    {
      stitch_kernel_nest1(tensors.p[2], (char*)tensors.p[3] + 0, tensors.p[1], work);
    }
  }
}
