"""The CUDA emulator: right kernels run right in every order, and each kind of fault is reported, whatever the order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from stitchfleet.compiler.kernel.host_kernel import aligned
from tests.compiler.cuda_emulator import CudaCompileError, Emulated, build, trampoline

SEEDS = range(12)


@dataclass(frozen=True)
class Kernel:
    """The text of a `kernel(tensors, semaphore)` in a namespace of its own, so that many fit one translation unit."""

    name: str
    text: str

    def but(self, name: str, old: str, new: str = "") -> Kernel:
        """The same with one thing changed: how a test breaks it."""
        assert self.text.count(old) == 1, old
        return Kernel(name, self.text.replace(old, new))

    @property
    def source(self) -> str:
        return f"namespace {self.name}_source {{\n{self.text}}}\n"

    @property
    def entry(self) -> str:
        return trampoline(self.name, f"{self.name}_source::kernel(tensors, semaphore)")


ADD = Kernel(
    "add",
    """
    __global__ void __launch_bounds__(64) kernel(void** tensors, unsigned*) {
      const int n = 1000;
      STITCH_GLOBAL_CONST(float, a, tensors[0], n);
      STITCH_GLOBAL_CONST(float, b, tensors[1], n);
      STITCH_GLOBAL(float, sum, tensors[2], n);
      for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum[i] = (i % 2 == 0 ? a[i] : (float)0) + (i % 2 == 0 ? (float)0 : a[i]) + b[i];
      }
    }
    """,
)
ADD_TOO_FAR = ADD.but("add_too_far", "i < n", "i <= n")
ADD_DECLARED_TOO_LONG = ADD.but("add_declared_too_long", "sum, tensors[2], n", "sum, tensors[2], n + 1").but(
    "add_declared_too_long", "i < n", "i <= n"
)

# Elements of 1, 2 and 8 bytes: neighbours in one word belong to different threads.
COPY = Kernel(
    "copy",
    """
    template <class T> __device__ __forceinline__ void copy(void* from, void* to) {
      STITCH_GLOBAL_CONST(T, source, from, 100);
      STITCH_GLOBAL(T, target, to, 100);
      STITCH_SHARED(T, tile, 16, 100);
      if (threadIdx.x < 100) tile[threadIdx.x] = source[threadIdx.x];
      __syncthreads();
      if (threadIdx.x < 100) target[threadIdx.x] = tile[99 - threadIdx.x];
      __syncthreads();
    }
    __global__ void kernel(void** tensors, unsigned*) {
      copy<unsigned char>(tensors[0], tensors[1]);
      copy<unsigned short>(tensors[2], tensors[3]);
      copy<double>(tensors[4], tensors[5]);
    }
    """,
)

ROW_SUMS = Kernel(
    "row_sums",
    """
    static __device__ __forceinline__ float added(float a, float b) { return a + b; }
    __global__ void __launch_bounds__(128) kernel(void** tensors, unsigned*) {
      const long long rows = 6, columns = 200;
      STITCH_GLOBAL_CONST(float, x, tensors[0], rows * columns);
      STITCH_GLOBAL(float, y, tensors[1], rows);
      STITCH_SHARED(float, partial, 8, 4);
      for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0.0f;
        for (long long i = threadIdx.x; i < columns; i += blockDim.x) sum = added(sum, x[row * columns + i]);
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
        __syncthreads();  // partial is written
        float total = 0.0f;
        for (int warp = 0; warp < 4; ++warp) total += partial[warp];
        if (threadIdx.x == 0) y[row] = total;
        __syncthreads();  // partial is read
      }
    }
    """,
)
ROW_SUMS_READ_EARLY = ROW_SUMS.but("row_sums_read_early", "__syncthreads();  // partial is written")
ROW_SUMS_OVERWRITTEN = ROW_SUMS.but("row_sums_overwritten", "__syncthreads();  // partial is read")
ROW_SUMS_LITTLE_SHARED = ROW_SUMS.but("row_sums_little_shared", "partial, 8, 4", "partial, 12, 4")
ROW_SUMS_MISALIGNED = ROW_SUMS.but("row_sums_misaligned", "partial, 8, 4", "partial, 6, 4")
ROW_SUMS_LACKING_ONE = ROW_SUMS.but("row_sums_lacking_one", "threadIdx.x % 32 == 0", "threadIdx.x % 96 == 0")
ROW_SUMS_READ_BACK = ROW_SUMS.but("row_sums_read_back", "y[row] = total", "y[row] = y[row] + total")

# Groups of 8 lanes, each with its own row: summed by shuffles, then handed on through shared memory.
GROUPS = Kernel(
    "groups",
    """
    __global__ void kernel(void** tensors, unsigned*) {
      STITCH_GLOBAL_CONST(double, x, tensors[0], 64);
      STITCH_GLOBAL(double, y, tensors[1], 64);
      STITCH_SHARED(double, tile, 0, 8);
      const unsigned lane = threadIdx.x % 32, group = threadIdx.x / 8, mask = 0xffu << (lane & ~7u);
      double sum = x[threadIdx.x];
      for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(mask, sum, apart);
      if (group % 2 == 1) sum = __shfl_sync(mask, sum, lane & ~7u) + (double)__shfl_xor_sync(mask, 1ll << 40, 1);
      if (lane % 8 == 3) tile[group] = sum;
      __syncwarp(mask);  // tile is written
      y[threadIdx.x] = tile[group] + threadIdx.x;
    }
    """,
)
GROUPS_UNORDERED = GROUPS.but("groups_unordered", "__syncwarp(mask);  // tile is written")
GROUPS_HALF_ORDERED = GROUPS.but(
    "groups_half_ordered", "__syncwarp(mask);  // tile is written", "__syncwarp(0xfu << (lane & ~3u));"
)

# Each block writes what another reads after a barrier of the whole grid, three times.
EXCHANGE = Kernel(
    "exchange",
    """
    static __device__ __forceinline__ void grid_barrier(unsigned* semaphore) {
      STITCH_GRID_BARRIER_BEGIN();
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();
        const unsigned mine = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        const unsigned before = atomicAdd(semaphore, mine);
        while (((before ^ *(volatile unsigned*)semaphore) & 0x80000000u) == 0) __nanosleep(20);
        __threadfence();
      }
      __syncthreads();
      STITCH_GRID_BARRIER_END();
    }
    __global__ void kernel(void** tensors, unsigned* semaphore) {
      const long long n = gridDim.x * blockDim.x, mine = blockIdx.x * blockDim.x + threadIdx.x;
      STITCH_GLOBAL(int, values, tensors[0], n);
      STITCH_GLOBAL(int, scratch, tensors[1], n);
      for (int round = 0; round < 3; ++round) {
        scratch[mine] = values[mine] + 1;
        grid_barrier(semaphore);  // scratch is written
        values[mine] = scratch[(mine + blockDim.x) % n];
        grid_barrier(semaphore);  // scratch is read
      }
    }
    """,
)
EXCHANGE_READ_EARLY = EXCHANGE.but("exchange_read_early", "grid_barrier(semaphore);  // scratch is written")
EXCHANGE_OVERWRITTEN = EXCHANGE.but("exchange_overwritten", "grid_barrier(semaphore);  // scratch is read")
EXCHANGE_NOT_WAITING = EXCHANGE.but("exchange_not_waiting", "& 0x80000000u) == 0)", "& 0u) != 0)")


def in_one_warp(name: str, statements: str) -> Kernel:
    """32 threads that each have a `lane` and a `value`, which they write to the only tensor in the end."""
    return Kernel(
        name,
        f"""
        __global__ void kernel(void** tensors, unsigned* semaphore) {{
          STITCH_GLOBAL(unsigned, out, tensors[0], 32);
          const unsigned lane = threadIdx.x;
          unsigned value = lane;
          {statements}
          out[lane] = value;
        }}
        """,
    )


ARRIVALS = in_one_warp("arrivals", "value = atomicAdd(semaphore, 1u);")
BARRIER_FOR_HALF = in_one_warp(
    "barrier_for_half", "if (lane < 16) __syncthreads(); else value = __shfl_xor_sync(0xffffffffu, value, 1);"
)
LANE_NEVER_COMES = in_one_warp("lane_never_comes", "__syncwarp(lane < 31 ? ~0u : 1u << 31);")
EXIT_BEFORE_SHUFFLE = in_one_warp(
    "exit_before_shuffle", "if (lane == 5) return; value = __shfl_xor_sync(~0u, value, 2);"
)
EXIT_BEFORE_BARRIER = in_one_warp("exit_before_barrier", "if (lane == 5) return; __syncthreads();")
MASK_OF_OTHERS = in_one_warp("mask_of_others", "__syncwarp(lane < 8 ? 0xffu : 0xffu << (lane & 16u));")
OPERATIONS_DIFFER = in_one_warp(
    "operations_differ", "if (lane < 16) __syncwarp(~0u); else value = __shfl_xor_sync(~0u, value, 1);"
)
SOURCE_TAKES_NO_PART = in_one_warp("source_takes_no_part", "value = __shfl_xor_sync(0xffu << (lane & 24u), value, 8);")
ONE_FOR_ALL = in_one_warp("one_for_all", "STITCH_SHARED(unsigned, word, 0, 1); word[0] = lane;")
# Lane 0 is the last to read and then overwrites: the other lanes' reads must not be forgotten for its own.
READ_LAST = in_one_warp(
    "read_last",
    """
    STITCH_SHARED(unsigned, word, 0, 1);
    if (lane == 0) word[0] = 7;
    __syncwarp();
    for (int i = 0; lane == 0 && i < 1000; ++i) __nanosleep(20);
    value = word[0];
    if (lane == 0) word[0] = value + 1;
    """,
)
FAR_OUT = in_one_warp(
    "far_out", "STITCH_SHARED(unsigned, tile, 0, 1); tile[1 + lane] = lane; out[32 + lane] = tile[64];"
)

# Four floats at once; StitchVector as generated kernels have it.
VECTORS = Kernel(
    "vectors",
    """
    template <class T, int N> struct alignas(sizeof(T) * N) StitchVector { T value[N]; };
    __global__ void kernel(void** tensors, unsigned*) {
      STITCH_GLOBAL_CONST(float, x, tensors[0], 128);
      STITCH_GLOBAL(float, y, tensors[1], 128);
      STITCH_LOAD_VECTOR(float, 4, four, x, threadIdx.x * 4);
      STITCH_STORE_VECTOR(float, 4, y, threadIdx.x * 4, four);
    }
    """,
)
VECTORS_BETWEEN = VECTORS.but("vectors_between", "four, x, threadIdx.x * 4", "four, x, threadIdx.x * 3")
VECTORS_STORED_BETWEEN = VECTORS.but("vectors_stored_between", "y, threadIdx.x * 4", "y, threadIdx.x * 3")
VECTORS_TOO_FAR = VECTORS.but("vectors_too_far", "four, x, threadIdx.x * 4", "four, x, threadIdx.x * 4 + 4")

KERNELS = [value for value in globals().values() if isinstance(value, Kernel)]


@pytest.fixture(scope="module")
def emulated() -> Emulated:
    source = "\n".join(kernel.source for kernel in KERNELS)
    return build(source, "\n".join(kernel.entry for kernel in KERNELS))


def add(emulated: Emulated, kernel: Kernel, seed: int, spare: int = 0) -> tuple[list[str], bool]:
    """What is said of a vector addition, and whether it is right."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 1000)).astype(np.float32)
    total = np.full(1000 + spare, 7.0, np.float32)
    messages = emulated.launch(
        [a, b, total[:1000]], [True, True, False], grid=3, block=64, shared_bytes=0, seed=seed, entry=kernel.name
    )
    return messages, bool((total[:1000] == a + b).all() and (total[1000:] == 7.0).all())


def row_sums(
    emulated: Emulated, kernel: Kernel, seed: int, grid: int = 2, resident: int | None = None
) -> tuple[list[str], bool]:
    x = np.random.default_rng(seed).integers(-9, 9, (6, 200)).astype(np.float32)
    y = np.zeros(6, np.float32)
    messages = emulated.launch([x, y], [True, False], grid, 128, 24, resident, seed, entry=kernel.name)
    return messages, bool((y == x.sum(axis=1)).all())


def groups(emulated: Emulated, kernel: Kernel, seed: int) -> tuple[list[str], bool]:
    x = np.random.default_rng(seed).integers(-9, 9, 64).astype(np.float64)
    y = np.zeros(64)
    messages = emulated.launch([x, y], [True, False], 1, 64, 64, seed=seed, entry=kernel.name)
    sums = x.reshape(8, 8).sum(axis=1) + [0, 2.0**40] * 4
    return messages, bool((y == np.repeat(sums, 8) + np.arange(64)).all())


def exchange(
    emulated: Emulated, kernel: Kernel, seed: int, grid: int = 4, resident: int | None = None
) -> tuple[list[str], bool]:
    values, semaphore = np.arange(grid * 64, dtype=np.int32), np.zeros(1, np.uint32)
    expected = np.roll(values, -3 * 64) + 3
    messages = emulated.launch(
        [values, np.zeros_like(values)],
        [True, False],
        grid,
        64,
        0,
        resident,
        seed,
        semaphore=semaphore,
        entry=kernel.name,
    )
    return messages, bool((values == expected).all())


def one_warp(emulated: Emulated, kernel: Kernel, seed: int = 0) -> tuple[list[str], list[int]]:
    out = np.zeros(32, np.uint32)
    messages = emulated.launch([out], [False], 1, 32, 4, seed=seed, entry=kernel.name)
    return messages, out.tolist()


def only(messages: list[str], kind: str, buffer: str = "") -> bool:
    """Whether something is reported, and nothing but this kind (about this buffer)."""
    return bool(messages) and all(message.startswith(f"{kind}: {buffer}") for message in messages)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_kernel_is_right_in_every_order_and_nothing_is_reported(emulated: Emulated, seed: int) -> None:
    assert add(emulated, ADD, seed) == ([], True)
    assert row_sums(emulated, ROW_SUMS, seed) == ([], True)
    assert row_sums(emulated, ROW_SUMS, seed, grid=6, resident=1 + seed % 3) == ([], True)
    assert groups(emulated, GROUPS, seed) == ([], True)
    assert exchange(emulated, EXCHANGE, seed) == ([], True)


@pytest.mark.parametrize("switch_per_mille", [0, 100, 1000])
def test_threads_may_be_interrupted_at_every_access_or_at_none(emulated: Emulated, switch_per_mille: int) -> None:
    values = np.arange(256, dtype=np.int32)
    tensors, given = [values, np.zeros_like(values)], [True, False]
    assert not emulated.launch(tensors, given, 4, 64, 0, switch_per_mille=switch_per_mille, entry=EXCHANGE.name)
    assert (values == np.roll(np.arange(256), -192) + 3).all()


def test_a_semaphore_resets_itself_for_the_next_launch(emulated: Emulated) -> None:
    values, semaphore = np.arange(256, dtype=np.int32), np.zeros(1, np.uint32)
    for _ in range(3):
        tensors = [values, np.zeros_like(values)]
        assert not emulated.launch(tensors, [True, False], 4, 64, 0, semaphore=semaphore, entry=EXCHANGE.name)
    assert (values == np.roll(np.arange(256), -9 * 64) + 9).all()


def test_threads_of_elements_in_one_word_do_not_race(emulated: Emulated) -> None:
    tensors: list[np.typing.NDArray[np.generic]] = []
    for dtype in (np.uint8, np.uint16, np.float64):
        tensors += [np.arange(100).astype(dtype), np.zeros(100, dtype)]
    for seed in SEEDS:
        assert not emulated.launch(tensors, [True, False] * 3, 1, 128, 816, seed=seed, entry=COPY.name)
        for source, target in zip(tensors[::2], tensors[1::2], strict=True):
            assert (target == source[::-1]).all()


def test_the_seed_decides_the_order(emulated: Emulated) -> None:
    orders = [tuple(one_warp(emulated, ARRIVALS, seed)[1]) for seed in SEEDS]
    assert all(sorted(order) == list(range(32)) for order in orders)
    assert len(set(orders)) == len(orders)
    assert orders == [tuple(one_warp(emulated, ARRIVALS, seed)[1]) for seed in SEEDS]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_block_barrier_is_a_race_in_every_order(emulated: Emulated, seed: int) -> None:
    early, _ = row_sums(emulated, ROW_SUMS_READ_EARLY, seed)
    assert any(message.startswith("data race: partial[") for message in early)
    overwritten, _ = row_sums(emulated, ROW_SUMS_OVERWRITTEN, seed)
    assert only(overwritten, "data race", "partial[")
    assert all("overwrites what" in message and message.count(" read, ") == 1 for message in overwritten)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_warp_operation_does_not_order_is_a_race(emulated: Emulated, seed: int) -> None:
    for kernel in (GROUPS_UNORDERED, GROUPS_HALF_ORDERED):
        messages, _ = groups(emulated, kernel, seed)
        assert any(message.startswith("data race: tile[") for message in messages)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_grid_barrier_is_a_race_in_every_order(emulated: Emulated, seed: int) -> None:
    early, _ = exchange(emulated, EXCHANGE_READ_EARLY, seed)
    assert any(message.startswith("data race: scratch[") for message in early)
    overwritten, _ = exchange(emulated, EXCHANGE_OVERWRITTEN, seed)
    assert any(message.startswith("data race: scratch[") for message in overwritten)


def test_a_write_by_all_is_a_race(emulated: Emulated) -> None:
    assert only(one_warp(emulated, ONE_FOR_ALL)[0], "data race", "word[0]")


def test_an_overwrite_by_the_last_reader_is_a_race_with_the_others(emulated: Emulated) -> None:
    assert only(one_warp(emulated, READ_LAST)[0], "data race", "word[0]: block 0 thread 0 overwrites")


def test_a_grid_barrier_that_does_not_wait_is_reported(emulated: Emulated) -> None:
    messages, _ = exchange(emulated, EXCHANGE_NOT_WAITING, 0)
    assert any(
        message.startswith("grid barrier: ") and "of 256 threads have arrived" in message for message in messages
    )


def test_a_grid_barrier_of_more_blocks_than_are_resident_is_a_deadlock(emulated: Emulated) -> None:
    messages, _ = exchange(emulated, EXCHANGE, 0, grid=5, resident=4)
    assert only(messages, "deadlock")
    assert any("1 of 5 blocks have not started" in message for message in messages)
    assert any("1 sleeping in a loop (thread 0)" in message for message in messages)
    assert exchange(emulated, EXCHANGE, 0, grid=5, resident=5) == ([], True), "a launch after a deadlock is a fresh one"


def test_an_index_too_far_is_out_of_bounds_and_changes_nothing(emulated: Emulated) -> None:
    messages, right = add(emulated, ADD_TOO_FAR, 0, spare=8)
    assert right
    assert only(messages, "out of bounds")
    assert {message.split()[3] for message in messages} == {"a[1000]:", "b[1000]:", "sum[1000]:"}
    assert "block 0 thread 40 writes it, of 1000 elements" in " ".join(messages)


def test_elements_beyond_the_allocation_are_out_of_bounds(emulated: Emulated) -> None:
    messages, right = add(emulated, ADD_DECLARED_TOO_LONG, 0, spare=8)
    assert right
    assert "out of bounds: sum[1000]: block 0 thread 40 writes it, at byte 4000 of 4000 of its allocation" in messages
    nowhere = emulated.launch([np.zeros(1, np.float32)] * 3, [True] * 3, 1, 64, 0, entry=ADD.name)
    assert only(nowhere, "out of bounds")


def test_shared_memory_ends_where_the_launch_says(emulated: Emulated) -> None:
    messages, _ = row_sums(emulated, ROW_SUMS_LITTLE_SHARED, 0)
    assert only(messages, "out of bounds", "partial[3]")
    assert "at byte 24 of 24 of shared memory" in messages[0]


def test_a_misaligned_buffer_is_reported(emulated: Emulated) -> None:
    messages, _ = row_sums(emulated, ROW_SUMS_MISALIGNED, 0)
    assert only(messages, "misaligned", "partial")


def vectors(emulated: Emulated, kernel: Kernel, x: np.typing.NDArray[np.float32]) -> tuple[list[str], bool]:
    y = aligned((128,), np.dtype(np.float32))
    messages = emulated.launch([x, y], [True, False], 1, 32, 0, entry=kernel.name)
    return messages, bool((y == x).all())


def test_a_vector_that_is_not_at_a_multiple_of_its_size_is_reported(emulated: Emulated) -> None:
    x = aligned((132,), np.dtype(np.float32))
    x[:] = np.arange(132)
    assert vectors(emulated, VECTORS, x[:128]) == ([], True)
    assert vectors(emulated, VECTORS, x[4:]) == ([], True)
    messages, _ = vectors(emulated, VECTORS, x[1:129])
    assert only(messages, "misaligned", "x[")
    assert all("not at a multiple of the 16 bytes that are moved at once" in message for message in messages)
    assert only(vectors(emulated, VECTORS_BETWEEN, x[:128])[0], "misaligned", "x[")
    stored = vectors(emulated, VECTORS_STORED_BETWEEN, x[:128])[0]
    assert any(message.startswith("misaligned: y[") for message in stored)
    too_far = vectors(emulated, VECTORS_TOO_FAR, x[:128])[0]
    assert any(message.startswith("out of bounds: x[128]") for message in too_far)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_of_what_nobody_wrote_is_reported(emulated: Emulated, seed: int) -> None:
    shared, _ = row_sums(emulated, ROW_SUMS_LACKING_ONE, seed)
    assert {message.split(":")[1] for message in shared} == {" partial[1]", " partial[2]"}
    assert only(shared, "uninitialised")
    allocated, _ = row_sums(emulated, ROW_SUMS_READ_BACK, seed)
    assert only(allocated, "uninitialised", "y[")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_half_of_the_threads_reach_is_a_deadlock(emulated: Emulated, seed: int) -> None:
    messages, _ = one_warp(emulated, BARRIER_FOR_HALF, seed)
    assert messages == [
        "deadlock: block 0 waits: 16 in __syncthreads (thread 0), "
        "16 in __shfl_xor_sync of 4 bytes with mask 0xffffffff (thread 16)"
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_thread_that_ends_while_others_wait_for_it_is_reported(emulated: Emulated, seed: int) -> None:
    messages, values = one_warp(emulated, EXIT_BEFORE_SHUFFLE, seed)
    assert messages[0].startswith("thread exit: block 0 thread 5 has ended, but thread ")
    assert messages[-1].startswith("divergence: block 0 thread 7 reads lane 5")
    assert [value for lane, value in enumerate(values) if lane not in (5, 7)] == [
        lane ^ 2 for lane in range(32) if lane not in (5, 7)
    ]
    assert only(one_warp(emulated, EXIT_BEFORE_BARRIER, seed)[0], "thread exit", "block 0 thread 5 has ended")
    assert only(one_warp(emulated, LANE_NEVER_COMES, seed)[0], "thread exit", "block 0 thread 31 has ended")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_warp_operation_that_lanes_do_not_agree_on_is_reported(emulated: Emulated, seed: int) -> None:
    unnamed, _ = one_warp(emulated, MASK_OF_OTHERS, seed)
    assert only(unnamed, "divergence")
    assert all("calls __syncwarp with mask" in message and "which does not name it" in message for message in unnamed)
    differing, _ = one_warp(emulated, OPERATIONS_DIFFER, seed)
    assert only(differing, "divergence")
    assert any("is in __syncwarp where" in message or "is in __shfl_xor" in message for message in differing)
    absent, _ = one_warp(emulated, SOURCE_TAKES_NO_PART, seed)
    assert only(absent, "divergence")
    assert all("in __shfl_xor_sync of 4 bytes, which takes no part" in message for message in absent)


def test_messages_are_few_and_each_is_said_once(emulated: Emulated) -> None:
    messages, _ = one_warp(emulated, FAR_OUT)
    assert len(messages) == len(set(messages)) <= 20
    assert any("tile[" in message for message in messages)
    assert any("out[" in message for message in messages)


def test_a_launch_that_no_gpu_would_take_is_refused(emulated: Emulated) -> None:
    for grid, block in ((0, 32), (1, 0), (1, 1025)):
        assert only(emulated.launch([np.zeros(32)], [True], grid, block, 0, entry=ARRIVALS.name), "launch")


def test_a_read_only_buffer_cannot_be_written() -> None:
    writing = ADD.but("writing", "STITCH_GLOBAL(float, sum", "STITCH_GLOBAL_CONST(float, sum")
    with pytest.raises(CudaCompileError, match="operator="):
        build(writing.source, writing.entry)
