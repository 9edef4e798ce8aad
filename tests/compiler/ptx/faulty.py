"""Small kernels in PTX by hand, right ones, and how a test breaks them."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 stitch_shared[];
.const .align 4 .b8 numbers[8] = {1, 0, 0, 0, 2};
.visible .entry kernel(.param .u64 out, .param .u64 in, .param .u64 semaphore)
.maxntid 64, 1, 1
{
  .reg .pred %p<9>;
  .reg .b16 %h<9>;
  .reg .b32 %r<40>;
  .reg .f32 %f<9>;
  .reg .b64 %rd<20>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u64 %rd3, [semaphore];
  cvta.to.global.u64 %rd4, %rd1;
  cvta.to.global.u64 %rd5, %rd2;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd6, %r1, 4;
  add.s64 %rd7, %rd4, %rd6;
  add.s64 %rd8, %rd5, %rd6;
  mov.u32 %r10, stitch_shared;
  shl.b32 %r11, %r1, 2;
  add.s32 %r11, %r10, %r11;
  setp.lt.u32 %p1, %r1, 32;
"""


@dataclass(frozen=True)
class Kernel:
    """The statements of a kernel of `out`, `in` (64 words each) and `semaphore`, behind HEAD's registers: %rd7 and %rd8 are the
    addresses of this thread's word of `out` and `in`, %r11 that in shared memory, %r1 its number, %r2 the block's, %p1 whether it is
    in the first warp."""

    text: str

    @property
    def ptx(self) -> str:
        return f"{HEAD}{self.text}  ret;\n}}\n"

    def but(self, old: str, new: str = "") -> Kernel:
        """The same with one thing changed: how a test breaks it."""
        assert self.text.count(old) == 1, old
        return Kernel(self.text.replace(old, new))


REVERSED = Kernel(
    """
  ld.global.u32 %r3, [%rd8];
  st.shared.u32 [%r11], %r3;
  bar.sync 0;
  sub.s32 %r12, 63, %r1;
  shl.b32 %r12, %r12, 2;
  add.s32 %r12, %r10, %r12;
  ld.shared.u32 %r4, [%r12];
  st.global.u32 [%rd7], %r4;
"""
)
"""out = in, reversed, through shared memory."""

COPIED = Kernel("  ld.global.nc.u32 %r3, [%rd8];\n  st.global.u32 [%rd7], %r3;\n")

PAIRS = Kernel(
    """
  add.s64 %rd10, %rd8, %rd6;
  add.s64 %rd11, %rd7, %rd6;
  @!%p1 bra $done;
  ld.global.v2.u32 {%r3, %r4}, [%rd10];
  st.global.v2.u32 [%rd11], {%r3, %r4};
$done:
"""
)
"""out = in, two words at a time."""

IN_WARP = Kernel(
    """
  ld.global.u32 %r3, [%rd8];
  st.shared.u32 [%r11], %r3;
  bar.warp.sync -1;
  and.b32 %r12, %r1, 32;
  sub.s32 %r13, 31, %r1;
  and.b32 %r13, %r13, 31;
  or.b32 %r12, %r12, %r13;
  shl.b32 %r12, %r12, 2;
  add.s32 %r12, %r10, %r12;
  ld.shared.u32 %r4, [%r12];
  st.global.u32 [%rd7], %r4;
"""
)
"""out = in, reversed within each warp, through shared memory."""

EXCHANGED = Kernel(
    """
  ld.global.u32 %r3, [%rd8];
  shfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;
  and.b32 %r5, %r3, 1;
  setp.ne.s32 %p3, %r5, 0;
  vote.sync.ballot.b32 %r6, %p3, -1;
  xor.b32 %r4, %r4, %r6;
  st.global.u32 [%rd7], %r4;
"""
)
"""out = in of the neighbouring lane, xor which of the warp's are odd."""

COUNTED = Kernel(
    """
  setp.eq.u32 %p2, %r1, 0;
  mov.u32 %r3, 5;
  @%p2 st.global.u32 [%rd4], %r3;
  bar.sync 0;
  atom.global.add.u32 %r4, [%rd4], 2;
  red.global.max.u32 [%rd4], 5;
"""
)
"""out[0] = 5 + 2 * 64, by atomics, half of which change nothing."""

GRID = Kernel(
    """
  mov.u32 %r20, %nctaid.x;
  setp.eq.u32 %p2, %r1, 0;
  mul.wide.u32 %rd10, %r2, 4;
  add.s64 %rd11, %rd4, %rd10;
  add.s32 %r3, %r2, 7;
  @%p2 st.global.u32 [%rd11], %r3;
  bar.sync 0;
  @!%p2 bra $past;
  membar.gl;
  sub.s32 %r4, -2147483647, %r20;
  setp.eq.u32 %p3, %r2, 0;
  selp.b32 %r4, %r4, 1, %p3;
  atom.global.add.u32 %r5, [%rd3], %r4;
$poll:
  ld.volatile.global.u32 %r6, [%rd3];
  xor.b32 %r6, %r6, %r5;
  setp.lt.s32 %p4, %r6, 0;
  @%p4 bra $seen;
  nanosleep.u32 20;
  bra $poll;
$seen:
  membar.gl;
$past:
  bar.sync 0;
  add.s32 %r7, %r2, 1;
  rem.u32 %r7, %r7, %r20;
  mul.wide.u32 %rd12, %r7, 4;
  add.s64 %rd13, %rd4, %rd12;
  ld.global.u32 %r8, [%rd13];
  @%p2 st.global.u32 [%rd11+128], %r8;
"""
)
"""out[32 + b] = 7 + the next block's number, through out[0..] and a grid barrier."""
