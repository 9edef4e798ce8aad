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
