// Executes CUDA C++ kernels on the CPU, with checks: included before the very source text that NVRTC compiles for a GPU
// (g++ -std=c++17 -x c++ -include cuda_emulator.h kernel.cu), it gives the CUDA names that generated kernels use a meaning of
// their own. Every CUDA thread is a fibre; all run on one OS thread, in a random order that a seed decides.
//
// Reported, one line each, while the kernel goes on where it can:
//   out of bounds   an access outside the elements that the source declared, or outside the allocation or the shared memory
//   misaligned      a buffer whose address is no multiple of its element's size, a vector's that is none of the vector's
//   uninitialised   a read of shared memory, or of an allocation registered as uninitialised, that nobody has written
//   data race       two accesses of one byte by different threads, one at least a write, that no synchronisation orders
//   divergence      a warp operation whose mask does not name the caller, at which lanes meet with different operations, or that
//                   reads a lane that takes no part
//   thread exit     a thread that ends while others wait for it
//   grid barrier    a thread that leaves the grid's barrier before all have arrived
//   deadlock        every thread waits; ends the launch
//
// Races are found by what orders the accesses, not by the order in which they happened to run. __syncthreads orders the threads of a
// block, a warp operation those of its mask that have arrived, a grid barrier all. Each is tracked at its own level (Stamp): a count
// of grid barriers, a count of block barriers, and a vector clock within the warp, which together are exact. What is remembered of
// an address is its last write and two reads (Cell): a race between accesses in different warps or blocks is never missed for that;
// of three or more lanes of one warp that read the same address, one that a later write does not wait for can be.
//
// Not seen: raw pointers (the semaphore), registers and local arrays; whether __threadfence is called where the GPU needs it; a loop
// that neither sleeps nor synchronises never ends. Launches of one library must not overlap.

#ifndef STITCHFLEET_TESTS_COMPILER_CUDA_EMULATOR_H_
#define STITCHFLEET_TESTS_COMPILER_CUDA_EMULATOR_H_

#if !defined(__x86_64__) || !defined(__linux__)
#error "the emulator switches stacks as x86-64 Linux does"
#endif

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STITCH_EMULATOR 1

#pragma GCC visibility push(hidden)

namespace emulator {

struct Allocation {
  void* pointer;
  long long bytes;
  int initialised;
};

struct Launch {
  unsigned grid, block;
  long long shared_bytes;  // of each block
  unsigned resident_blocks;  // live at a time; 0: all
  unsigned long long seed;
  int switch_per_mille;  // how often a thread is interrupted at an access of memory
  const Allocation* allocations;
  int allocation_count;
  char* messages;  // newline-separated text, ended by a zero
  long long message_bytes;
};

constexpr unsigned kWarpLanes = 32, kMostThreads = 1024, kMostWarps = kMostThreads / kWarpLanes;
constexpr long long kStackBytes = 64 * 1024, kStackReserve = 2 * 1024;
constexpr int kMostMessages = 20;
constexpr int kMostAlike = 4;  // of one kind about one buffer, so that one fault does not hide the others

// Sleeps without any progress after which a launch is stuck, for each resident thread: threads are chosen at random, so that one
// that could make progress is passed over that often with a probability of e^-64.
constexpr long long kSleepsPerThread = 64, kFewestSleeps = 1000;

// ---- what is known of threads, blocks and memory -----------------------------------------------------------------------------

// When an access happened, in the terms of the thread that made it.
struct Stamp {
  uint32_t clock;  // 1 + the thread's warp operations so far; 0: no access
  uint32_t block;
  uint32_t synchronised;  // block barriers that the thread has passed
  uint16_t thread;
  uint16_t began;  // grid barriers at which the thread has arrived
  uint32_t atomic;  // whether it is an atomic update, which needs no order with others
};

// The last write to a word (4 bytes) or a byte, and up to two reads since that are not ordered with each other.
struct Cell {
  Stamp write, reads[2];
  uint32_t split;  // of a word: each of its bytes has a cell of its own
};

struct Memory {
  char* begin;
  long long bytes;
  bool initialised, shared;
  Cell* words;
  Cell* parts;  // of bytes; made when the first access of less than a word needs it

  long long word_count() const { return (bytes + 3) / 4; }
  long long part_count() const { return word_count() * 4; }
};

enum class Wait : uint8_t { kNothing, kBlockBarrier, kWarpOperation, kEnd };

enum class WarpOperation : uint8_t { kSync, kXor4, kXor8, kShuffle4, kShuffle8, kBallot };

inline const char* name_of(WarpOperation operation) {
  static const char* const names[] = {"__syncwarp", "__shfl_xor_sync of 4 bytes", "__shfl_xor_sync of 8 bytes",
                                      "__shfl_sync of 4 bytes", "__shfl_sync of 8 bytes", "__ballot_sync"};
  return names[static_cast<int>(operation)];
}

struct Block;

struct Thread {
  void* stack_pointer;  // while another thread runs
  char* stack;
  Block* block;
  Stamp now;                   // what an access is stamped with
  uint32_t left;               // grid barriers that it has passed
  uint32_t known[kWarpLanes];  // accesses of each lane of its warp up to this clock happened before
  Wait wait;
  uint32_t source;  // the lane that it shuffles from
  uint64_t value;   // given to a shuffle, then got from it

  unsigned lane() const { return now.thread % kWarpLanes; }
  unsigned warp() const { return now.thread / kWarpLanes; }
};

// Lanes that wait in a warp operation with the same mask.
struct Meeting {
  unsigned mask, arrived;
  WarpOperation operation;
};

struct Warp {
  unsigned existing, ended;  // lanes
  int meeting_count;
  Meeting meetings[kWarpLanes];
};

struct Block {
  unsigned index;
  unsigned living, at_barrier;  // threads
  unsigned an_ended_thread;
  Thread* threads;
  Memory shared;
  Warp warps[kMostWarps];
};

struct Message {
  const char* kind;
  const char* about;
  long long place;
};

struct Index {
  unsigned x, y, z;
};

struct State {
  const Launch* launch;
  void (*kernel)(void*);
  void* kernel_call;
  uint64_t random;

  Block* blocks;  // the resident ones
  Thread* threads;
  Memory* allocations;
  unsigned resident, living_blocks;
  unsigned* block_order;
  unsigned blocks_started;
  uint64_t* grid_arrivals;  // at each of the grid's barriers, threads
  unsigned grid_barriers;

  Thread** runnable;
  unsigned runnable_count;
  Thread* current;
  void* scheduler_stack_pointer;
  long long until_switch, idle_sleeps;
  bool stopped;

  long long faults, message_length;
  int message_count;
  Message messages[kMostMessages];

  char* stacks;  // kept from launch to launch
  long long stacks_bytes;
};

static State state;

// What the kernel sees as threadIdx and so on.
static Index thread_index, block_index, block_size = {1, 1, 1}, grid_size = {1, 1, 1};

// ---- randomness and reports --------------------------------------------------------------------------------------------------

static inline uint32_t random_below(uint32_t bound) {
  state.random ^= state.random >> 12;  // xorshift64*
  state.random ^= state.random << 25;
  state.random ^= state.random >> 27;
  const uint64_t bits = (state.random * 0x2545f4914f6cdd1dull) >> 32;
  return static_cast<uint32_t>((bits * bound) >> 32);
}

// Accesses until the next interruption: uniform, of the mean that was asked for.
static inline long long draw_until_switch() {
  const int per_mille = state.launch->switch_per_mille;
  return per_mille <= 0 ? INT64_MAX : 1 + random_below(per_mille >= 1000 ? 1 : 2000u / per_mille - 1);
}

// Counts a fault and keeps its text, unless one of the same kind at the same place, or enough of its kind, are kept already.
__attribute__((format(printf, 4, 5))) static void report(const char* kind, const char* about, long long place, const char* format,
                                                         ...) {
  ++state.faults;
  int alike = 0;
  for (int i = 0; i < state.message_count; ++i) {
    const Message& kept = state.messages[i];
    if (strcmp(kept.kind, kind) != 0 || strcmp(kept.about, about) != 0) continue;
    if (kept.place == place || ++alike == kMostAlike) return;
  }
  if (state.message_count == kMostMessages) return;
  char line[640];
  const int head = snprintf(line, sizeof line, "%s: ", kind);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + head, sizeof line - head, format, arguments);
  va_end(arguments);
  const long long length = strlen(line), end = state.message_length + length + 2;
  if (end > state.launch->message_bytes) return;
  state.messages[state.message_count++] = {kind, about, place};
  memcpy(state.launch->messages + state.message_length, line, length);
  state.message_length += length;
  memcpy(state.launch->messages + state.message_length, "\n", 2);
  state.message_length += 1;
}

// ---- fibres ------------------------------------------------------------------------------------------------------------------

// Saves what a called function must preserve on this stack, and goes on where `load` was saved. noipa: the compiler sees neither that
// it returns later nor what other threads have changed by then, so it must not reason about it at all.
__attribute__((naked, noipa)) static void switch_stacks(void** /*save: rdi*/, void* /*load: rsi*/) {
  asm volatile(
      "pushq %rbp\n\t"
      "pushq %rbx\n\t"
      "pushq %r12\n\t"
      "pushq %r13\n\t"
      "pushq %r14\n\t"
      "pushq %r15\n\t"
      "movq %rsp, (%rdi)\n\t"
      "movq %rsi, %rsp\n\t"
      "popq %r15\n\t"
      "popq %r14\n\t"
      "popq %r13\n\t"
      "popq %r12\n\t"
      "popq %rbx\n\t"
      "popq %rbp\n\t"
      "ret");
}

static inline void make_runnable(Thread& thread) {
  thread.wait = Wait::kNothing;
  state.runnable[state.runnable_count++] = &thread;
}

static inline Thread* take_runnable() {
  const unsigned chosen = random_below(state.runnable_count);
  Thread* const thread = state.runnable[chosen];
  state.runnable[chosen] = state.runnable[--state.runnable_count];
  return thread;
}

static inline void switch_to(void** save, Thread* thread) {
  state.current = thread;
  thread_index.x = thread->now.thread;
  block_index.x = thread->now.block;
  switch_stacks(save, thread->stack_pointer);
}

// Runs a thread chosen at random, or the scheduler where none can run; returns when this one has been made runnable and chosen.
static void switch_away() {
  Thread& self = *state.current;
  if (static_cast<char*>(__builtin_frame_address(0)) < self.stack + kStackReserve) {
    report("stack", "", 0, "block %u thread %u needs more than the %lld bytes of a stack", self.now.block, self.now.thread,
           kStackBytes);
    state.stopped = true;
  }
  if (state.stopped || state.runnable_count == 0) {
    switch_stacks(&self.stack_pointer, state.scheduler_stack_pointer);
    return;
  }
  Thread* const next = take_runnable();
  if (next != &self) switch_to(&self.stack_pointer, next);
}

static void yield() {
  make_runnable(*state.current);
  switch_away();
}

static inline void perhaps_yield() {
  if (--state.until_switch > 0) return;
  state.until_switch = draw_until_switch();
  yield();
}

// ---- barriers and warp operations --------------------------------------------------------------------------------------------

static void release_block_barrier(Block& block) {
  block.at_barrier = 0;
  for (unsigned i = 0; i < block_size.x; ++i) {
    Thread& thread = block.threads[i];
    if (thread.wait != Wait::kBlockBarrier) continue;
    ++thread.now.synchronised;
    make_runnable(thread);
  }
}

static void report_exit(const Thread& ended, const Thread& waiting, const char* where) {
  report("thread exit", where, ended.now.block, "block %u thread %u has ended, but thread %u waits for it in %s", ended.now.block,
         ended.now.thread, waiting.now.thread, where);
}

static void block_barrier() {
  Thread& self = *state.current;
  Block& block = *self.block;
  state.idle_sleeps = 0;
  if (block.living < block_size.x) report_exit(block.threads[block.an_ended_thread], self, "__syncthreads");
  self.wait = Wait::kBlockBarrier;
  if (++block.at_barrier == block.living) release_block_barrier(block);
  switch_away();
}

// All lanes of the meeting that still can have arrived: hands over their values, orders them, lets them go on.
static void complete_meeting(Block& block, unsigned warp_number, int meeting_number) {
  Warp& warp = block.warps[warp_number];
  const Meeting meeting = warp.meetings[meeting_number];
  warp.meetings[meeting_number] = warp.meetings[--warp.meeting_count];
  Thread* const lanes = block.threads + warp_number * kWarpLanes;
  uint64_t values[kWarpLanes];
  uint32_t known[kWarpLanes] = {};
  uint64_t ballot = 0;
  for (unsigned rest = meeting.arrived; rest != 0; rest &= rest - 1) {
    const unsigned lane = __builtin_ctz(rest);
    Thread& thread = lanes[lane];
    values[lane] = thread.value;
    ballot |= static_cast<uint64_t>(thread.value != 0) << lane;
    for (unsigned i = 0; i < kWarpLanes; ++i) known[i] = known[i] > thread.known[i] ? known[i] : thread.known[i];
    thread.known[lane] = thread.now.clock++;
    known[lane] = thread.known[lane];
  }
  for (unsigned rest = meeting.arrived; rest != 0; rest &= rest - 1) {
    Thread& thread = lanes[__builtin_ctz(rest)];
    memcpy(thread.known, known, sizeof known);
    if (meeting.operation == WarpOperation::kBallot) {
      thread.value = ballot;
    } else if (meeting.operation != WarpOperation::kSync) {
      if (thread.source < kWarpLanes && (meeting.arrived >> thread.source & 1) != 0) {
        thread.value = values[thread.source];
      } else {
        report("divergence", name_of(meeting.operation), thread.now.block,
               "block %u thread %u reads lane %u in %s, which takes no part (mask 0x%x)", thread.now.block, thread.now.thread,
               thread.source, name_of(meeting.operation), meeting.mask);
      }
    }
    make_runnable(thread);
  }
}

// True when nobody else will come to the meeting.
static inline bool is_complete(const Warp& warp, const Meeting& meeting) {
  return (meeting.mask & warp.existing & ~warp.ended & ~meeting.arrived) == 0;
}

static inline Thread& first_lane(Block& block, unsigned warp, unsigned lanes) {
  return block.threads[warp * kWarpLanes + __builtin_ctz(lanes)];
}

static uint64_t warp_operation(WarpOperation operation, unsigned mask, unsigned source, uint64_t value) {
  Thread& self = *state.current;
  Block& block = *self.block;
  Warp& warp = block.warps[self.warp()];
  state.idle_sleeps = 0;
  if ((mask >> self.lane() & 1) == 0) {
    report("divergence", name_of(operation), self.now.block, "block %u thread %u calls %s with mask 0x%x, which does not name it",
           self.now.block, self.now.thread, name_of(operation), mask);
    return value;
  }
  int number = 0;
  while (number < warp.meeting_count && warp.meetings[number].mask != mask) ++number;
  Meeting& meeting = warp.meetings[number];
  if (number == warp.meeting_count) {
    meeting = {mask, 0, operation};
    ++warp.meeting_count;
  } else if (meeting.operation != operation) {
    report("divergence", name_of(operation), self.now.block, "block %u thread %u is in %s where thread %u is in %s (mask 0x%x)",
           self.now.block, self.now.thread, name_of(operation), first_lane(block, self.warp(), meeting.arrived).now.thread,
           name_of(meeting.operation), mask);
  }
  if ((mask & warp.ended) != 0) report_exit(first_lane(block, self.warp(), mask & warp.ended), self, name_of(operation));
  meeting.arrived |= 1u << self.lane();
  self.wait = Wait::kWarpOperation;
  self.source = source;
  self.value = value;
  if (is_complete(warp, meeting)) complete_meeting(block, self.warp(), number);
  switch_away();
  return self.value;
}

static void begin_grid_barrier() {
  Thread& self = *state.current;
  state.idle_sleeps = 0;
  if (self.now.began == UINT16_MAX) {
    report("grid barrier", "", -1, "more than %d in one launch cannot be told apart", UINT16_MAX);
    state.stopped = true;
    switch_away();
  }
  const unsigned number = self.now.began++;
  if (number == state.grid_barriers) {
    ++state.grid_barriers;
    state.grid_arrivals = static_cast<uint64_t*>(realloc(state.grid_arrivals, state.grid_barriers * sizeof(uint64_t)));
    state.grid_arrivals[number] = 0;
  }
  ++state.grid_arrivals[number];
}

static void end_grid_barrier() {
  Thread& self = *state.current;
  state.idle_sleeps = 0;
  const uint64_t threads = static_cast<uint64_t>(grid_size.x) * block_size.x;
  const unsigned number = self.left++;
  if (number >= self.now.began) {
    report("grid barrier", "", number, "block %u thread %u leaves barrier %u at which it did not arrive", self.now.block,
           self.now.thread, number);
  } else if (state.grid_arrivals[number] < threads) {
    report("grid barrier", "", number, "block %u thread %u leaves barrier %u when %llu of %llu threads have arrived", self.now.block,
           self.now.thread, number, static_cast<unsigned long long>(state.grid_arrivals[number]),
           static_cast<unsigned long long>(threads));
  }
}

// ---- deadlock ----------------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 3, 4))) static void append(char* line, size_t bytes, const char* format, ...) {
  const size_t length = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + length, bytes - length, format, arguments);
  va_end(arguments);
}

// One line for each resident block: where its threads wait.
static void report_deadlock() {
  for (unsigned slot = 0; slot < state.resident; ++slot) {
    Block& block = state.blocks[slot];
    if (block.living == 0) continue;
    char line[512] = "";
    unsigned first_at_barrier = 0, sleeping = 0, first_sleeping = 0;
    for (unsigned i = block_size.x; i-- > 0;) {
      if (block.threads[i].wait == Wait::kBlockBarrier) first_at_barrier = i;
      if (block.threads[i].wait != Wait::kNothing) continue;
      ++sleeping;
      first_sleeping = i;
    }
    if (block.at_barrier > 0) append(line, sizeof line, ", %u in __syncthreads (thread %u)", block.at_barrier, first_at_barrier);
    if (sleeping > 0) append(line, sizeof line, ", %u sleeping in a loop (thread %u)", sleeping, first_sleeping);
    for (unsigned number = 0; number * kWarpLanes < block_size.x; ++number) {
      const Warp& warp = block.warps[number];
      for (int i = 0; i < warp.meeting_count; ++i) {
        const Meeting& meeting = warp.meetings[i];
        append(line, sizeof line, ", %d in %s with mask 0x%x (thread %u)", __builtin_popcount(meeting.arrived),
               name_of(meeting.operation), meeting.mask, first_lane(block, number, meeting.arrived).now.thread);
      }
    }
    report("deadlock", "", block.index, "block %u waits: %s", block.index, line + 2);
  }
  const uint64_t threads = static_cast<uint64_t>(grid_size.x) * block_size.x;
  for (unsigned i = 0; i < state.grid_barriers; ++i) {
    if (state.grid_arrivals[i] == threads) continue;
    report("deadlock", "grid barrier", i, "%llu of %llu threads have arrived at grid barrier %u; %u of %u blocks have not started",
           static_cast<unsigned long long>(state.grid_arrivals[i]), static_cast<unsigned long long>(threads), i,
           grid_size.x - state.blocks_started, grid_size.x);
  }
}

static void sleep_in_loop() {
  const long long threads = static_cast<long long>(state.living_blocks) * block_size.x;
  if (++state.idle_sleeps > kFewestSleeps + kSleepsPerThread * threads) {
    report_deadlock();
    state.stopped = true;
  }
  yield();
}

static unsigned add_atomically(unsigned* address, unsigned value) {
  perhaps_yield();
  if (value != 0) state.idle_sleeps = 0;
  const unsigned before = *address;
  *static_cast<volatile unsigned*>(address) = before + value;
  return before;
}

// ---- checked memory ----------------------------------------------------------------------------------------------------------

// What a source declared with STITCH_GLOBAL or STITCH_SHARED.
struct Range {
  const char* name;
  Memory* memory;    // null: in no allocation
  long long offset;  // in the memory, bytes
  long long elements;
};

// Whether the access that was stamped so happened before what the thread does now.
static inline bool is_ordered(const Stamp& before, const Thread& thread) {
  if (before.clock == 0 || before.began < thread.left) return true;
  if (before.block != thread.now.block) return false;
  if (before.synchronised < thread.now.synchronised || before.thread == thread.now.thread) return true;
  return before.thread / kWarpLanes == thread.warp() && thread.known[before.thread % kWarpLanes] >= before.clock;
}

// How high in the hierarchy two threads are apart.
static inline int distance(const Stamp& a, const Stamp& b) {
  return a.block != b.block ? 2 : (a.thread / kWarpLanes != b.thread / kWarpLanes ? 1 : 0);
}

// Of the reads since the last write, keeps two that are not ordered and as far apart as can be. Reads that are not ordered have
// passed the same grid barriers, and in one block the same block barriers; so a later write that waits for two of different blocks
// has waited for a grid barrier, and with that for all others; the same with different warps and a block barrier.
static inline void remember_read(Cell& cell, const Thread& thread) {
  Stamp& one = cell.reads[0];
  Stamp& other = cell.reads[1];
  const bool keep_one = !is_ordered(one, thread), keep_other = !is_ordered(other, thread);
  if (keep_one && keep_other) {
    const int apart = distance(one, other);
    if (apart != 0 && distance(one, thread.now) <= apart) return;
    if (apart == 0) one = distance(other, thread.now) == 0 ? other : one;  // of one warp, the latest two
    other = thread.now;
    return;
  }
  if (keep_other) one = other;
  if (keep_one || keep_other) {
    other = thread.now;
  } else {
    one = thread.now;
    other.clock = 0;
  }
}

static void report_race(const Range& range, long long index, const char* does, const Stamp& before, const char* did) {
  const Thread& self = *state.current;
  report("data race", range.name, index, "%s[%lld]: block %u thread %u %s what block %u thread %u %s, and nothing orders the two",
         range.name, index, self.now.block, self.now.thread, does, before.block, before.thread, did);
}

static inline void check_cell(Cell& cell, const Range& range, long long index, bool write) {
  const Thread& self = *state.current;
  const bool among_atomics = self.now.atomic && cell.write.atomic;
  if (!among_atomics && !is_ordered(cell.write, self)) report_race(range, index, write ? "overwrites" : "reads", cell.write, "wrote");
  if ((!write || self.now.atomic) && cell.write.clock == 0 && !range.memory->initialised) {
    report("uninitialised", range.name, index, "%s[%lld]: block %u thread %u reads it before anything was written there", range.name,
           index, self.now.block, self.now.thread);
  }
  if (write) {
    for (const Stamp& read : cell.reads) {
      if (!is_ordered(read, self)) report_race(range, index, "overwrites", read, "read");
    }
    cell.write = self.now;
    cell.reads[0].clock = cell.reads[1].clock = 0;
    return;
  }
  remember_read(cell, self);
}

// The cells of a word's bytes, which from now on stand for the word's own.
static Cell* split_word(Memory& memory, long long word) {
  if (memory.parts == nullptr) memory.parts = static_cast<Cell*>(calloc(memory.part_count(), sizeof(Cell)));
  Cell* const parts = memory.parts + word * 4;
  if (!memory.words[word].split) {
    for (int i = 0; i < 4; ++i) parts[i] = memory.words[word];
    memory.words[word].split = 1;
  }
  return parts;
}

// Checks and records an access; where its bytes are, or null where it may not be made.
__attribute__((noinline)) static char* touch(const Range& range, long long index, unsigned bytes, bool write) {
  perhaps_yield();
  state.idle_sleeps = 0;
  const Thread& self = *state.current;
  if (index < 0 || index >= range.elements) {
    report("out of bounds", range.name, index, "%s[%lld]: block %u thread %u %s it, of %lld elements", range.name, index,
           self.now.block, self.now.thread, write ? "writes" : "reads", range.elements);
    return nullptr;
  }
  const long long first = range.offset + index * bytes, end = first + bytes;
  if (range.memory == nullptr) {
    report("out of bounds", range.name, index, "%s[%lld]: block %u thread %u %s it, in no allocation", range.name, index,
           self.now.block, self.now.thread, write ? "writes" : "reads");
    return nullptr;
  }
  Memory& memory = *range.memory;
  if (first < 0 || end > memory.bytes) {
    report("out of bounds", range.name, index, "%s[%lld]: block %u thread %u %s it, at byte %lld of %lld of %s", range.name, index,
           self.now.block, self.now.thread, write ? "writes" : "reads", first, memory.bytes,
           memory.shared ? "shared memory" : "its allocation");
    return nullptr;
  }
  for (long long at = first; at < end;) {
    const long long word = at / 4, word_end = word * 4 + 4;
    if (at % 4 == 0 && word_end <= end && !memory.words[word].split) {
      check_cell(memory.words[word], range, index, write);
      at = word_end;
      continue;
    }
    Cell* const parts = split_word(memory, word);
    for (; at < end && at < word_end; ++at) check_cell(parts[at % 4], range, index, write);
  }
  return memory.begin + first;
}

template <class T>
inline T read_element(const Range& range, long long index) {
  T value{};
  if (const char* address = touch(range, index, sizeof(T), false)) memcpy(&value, address, sizeof(T));
  return value;
}

// An element of a buffer, as an expression: read where a T is needed.
template <class T>
struct ConstElement {
  const Range& range;
  const long long index;

  operator T() const { return read_element<T>(range, index); }
  ConstElement& operator=(const ConstElement&) = delete;
};

template <class T>
struct Element {
  const Range& range;
  const long long index;

  operator T() const { return read_element<T>(range, index); }
  const Element& operator=(T value) const {
    if (char* address = touch(range, index, sizeof(T), true)) memcpy(address, &value, sizeof(T));
    return *this;
  }
  const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
};

static Range declare(const char* name, Memory* memory, long long offset, long long elements, unsigned element_bytes) {
  const long long address = reinterpret_cast<long long>(memory->begin) + offset;
  if (elements > 0 && address % element_bytes != 0) {
    report("misaligned", name, 0, "%s: its address is no multiple of its elements' %u bytes", name, element_bytes);
  }
  return {name, memory, offset, elements};
}

static Range declare_global(const char* name, const void* pointer, long long elements, unsigned element_bytes) {
  const char* const address = static_cast<const char*>(pointer);
  for (int i = 0; i < state.launch->allocation_count; ++i) {
    Memory& memory = state.allocations[i];
    if (address < memory.begin || address >= memory.begin + memory.bytes) continue;
    return declare(name, &memory, address - memory.begin, elements, element_bytes);
  }
  return {name, nullptr, 0, elements};
}

static Range declare_shared(const char* name, long long offset, long long elements, unsigned element_bytes) {
  return declare(name, &state.current->block->shared, offset, elements, element_bytes);
}

template <class T>
struct Buffer {
  static constexpr long long kElementBytes = sizeof(T);
  const Range range;
  Element<T> operator[](long long index) const { return {range, index}; }
};

template <class T>
struct ConstBuffer {
  static constexpr long long kElementBytes = sizeof(T);
  const Range range;
  ConstElement<T> operator[](long long index) const { return {range, index}; }
};

// An atomic update of an element of type int.
template <class F>
inline void update_atomically(const Buffer<int>& buffer, long long index, int value, F better) {
  state.current->now.atomic = 1;
  if (char* address = touch(buffer.range, index, sizeof(int), true)) {
    int before;
    memcpy(&before, address, sizeof before);
    if (better(value, before)) memcpy(address, &value, sizeof value);
  }
  state.current->now.atomic = 0;
}

// Whether `bytes` bytes from an element on can be moved by one instruction: the address must be a multiple of them.
template <class B>
inline void check_vector(const B& buffer, long long index, unsigned long long bytes) {
  const char* const begin = buffer.range.memory == nullptr ? nullptr : buffer.range.memory->begin + buffer.range.offset;
  if ((reinterpret_cast<unsigned long long>(begin) + index * B::kElementBytes) % bytes != 0) {
    report("misaligned", buffer.range.name, index, "%s[%lld]: not at a multiple of the %llu bytes that are moved at once",
           buffer.range.name, index, bytes);
  }
}

// ---- launches ----------------------------------------------------------------------------------------------------------------

static void end_thread() {
  Thread& self = *state.current;
  Block& block = *self.block;
  Warp& warp = block.warps[self.warp()];
  state.idle_sleeps = 0;
  self.wait = Wait::kEnd;
  --block.living;
  block.an_ended_thread = self.now.thread;
  warp.ended |= 1u << self.lane();
  for (int i = warp.meeting_count; i-- > 0;) {
    const Meeting& meeting = warp.meetings[i];
    if ((meeting.mask >> self.lane() & 1) == 0) continue;
    report_exit(self, first_lane(block, self.warp(), meeting.arrived), name_of(meeting.operation));
    if (is_complete(warp, meeting)) complete_meeting(block, self.warp(), i);
  }
  if (block.at_barrier > 0) {
    unsigned waiting = 0;
    while (block.threads[waiting].wait != Wait::kBlockBarrier) ++waiting;
    report_exit(self, block.threads[waiting], "__syncthreads");
    if (block.at_barrier == block.living) release_block_barrier(block);
  }
  // To the scheduler, never to another thread: a block that starts in this one's place would overwrite the stack under its feet.
  switch_stacks(&self.stack_pointer, state.scheduler_stack_pointer);
}

static void thread_body() {
  state.kernel(state.kernel_call);
  end_thread();
}

static void start_block(Block& block) {
  block.index = state.block_order[state.blocks_started++];
  block.living = block_size.x;
  block.at_barrier = 0;
  Memory& shared = block.shared;
  memset(shared.begin, 0xff, shared.bytes);  // NaN, if somebody reads it all the same
  memset(shared.words, 0, shared.word_count() * sizeof(Cell));
  if (shared.parts != nullptr) memset(shared.parts, 0, shared.part_count() * sizeof(Cell));
  for (unsigned i = 0; i < kMostWarps; ++i) {
    const unsigned first = i * kWarpLanes, lanes = block_size.x > first ? block_size.x - first : 0;
    block.warps[i].existing = lanes >= kWarpLanes ? ~0u : (1u << lanes) - 1;
    block.warps[i].ended = 0;
    block.warps[i].meeting_count = 0;
  }
  for (unsigned i = 0; i < block_size.x; ++i) {
    Thread& thread = block.threads[i];
    thread.now = {1, block.index, 0, static_cast<uint16_t>(i), 0};
    thread.left = 0;
    memset(thread.known, 0, sizeof thread.known);
    // Tops at different distances from a page's start: at equal ones, all stacks would fight for the same lines of the cache.
    char* const top = thread.stack + kStackBytes - i * 832 % 4096;
    void** const frame = reinterpret_cast<void**>(top) - 8;  // six registers, where to go on, and a return address for nobody
    memset(frame, 0, 8 * sizeof(void*));
    frame[6] = reinterpret_cast<void*>(&thread_body);
    thread.stack_pointer = frame;
    make_runnable(thread);
  }
  ++state.living_blocks;
}

static void schedule() {
  while (state.living_blocks < state.resident) start_block(state.blocks[state.living_blocks]);
  while (!state.stopped && state.living_blocks > 0) {
    if (state.runnable_count == 0) {
      report_deadlock();
      return;
    }
    switch_to(&state.scheduler_stack_pointer, take_runnable());
    Block& block = *state.current->block;
    if (block.living > 0) continue;  // the last to run in a block is the thread that ended it
    --state.living_blocks;
    if (state.blocks_started < grid_size.x) start_block(block);
  }
}

template <class T>
inline T* make_array(long long count) {
  return static_cast<T*>(calloc(count > 0 ? count : 1, sizeof(T)));
}

// False where there is no room for the stacks.
static bool reserve_stacks(long long bytes) {
  if (bytes <= state.stacks_bytes) return true;
  if (state.stacks != nullptr) munmap(state.stacks, state.stacks_bytes);
  void* const stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  state.stacks = stacks == MAP_FAILED ? nullptr : static_cast<char*>(stacks);
  state.stacks_bytes = state.stacks == nullptr ? 0 : bytes;
  return state.stacks != nullptr;
}

static void make_state(const Launch& launch) {
  const unsigned resident = launch.resident_blocks == 0 ? launch.grid : launch.resident_blocks;
  state.resident = resident < launch.grid ? resident : launch.grid;
  const long long threads = static_cast<long long>(state.resident) * launch.block;
  state.living_blocks = state.blocks_started = state.grid_barriers = state.runnable_count = 0;
  state.grid_arrivals = nullptr;
  state.blocks = make_array<Block>(state.resident);
  state.threads = make_array<Thread>(threads);
  state.runnable = make_array<Thread*>(threads);
  state.block_order = make_array<unsigned>(launch.grid);
  for (unsigned i = 0; i < launch.grid; ++i) {
    const unsigned other = random_below(i + 1);
    state.block_order[i] = state.block_order[other];
    state.block_order[other] = i;
  }
  for (unsigned slot = 0; slot < state.resident; ++slot) {
    Block& block = state.blocks[slot];
    block.threads = state.threads + static_cast<long long>(slot) * launch.block;
    Memory& shared = block.shared;
    shared.bytes = launch.shared_bytes;
    shared.shared = true;
    shared.begin = static_cast<char*>(aligned_alloc(128, (launch.shared_bytes / 128 + 1) * 128));
    shared.words = make_array<Cell>(shared.word_count());
    for (unsigned i = 0; i < launch.block; ++i) {
      block.threads[i].block = &block;
      block.threads[i].stack = state.stacks + (static_cast<long long>(slot) * launch.block + i) * kStackBytes;
    }
  }
  state.allocations = make_array<Memory>(launch.allocation_count);
  for (int i = 0; i < launch.allocation_count; ++i) {
    const Allocation& allocation = launch.allocations[i];
    Memory& memory = state.allocations[i];
    memory = {static_cast<char*>(allocation.pointer), allocation.bytes, allocation.initialised != 0, false, nullptr, nullptr};
    memory.words = make_array<Cell>(memory.word_count());
  }
}

static void free_state() {
  for (unsigned slot = 0; slot < state.resident; ++slot) {
    free(state.blocks[slot].shared.begin);
    free(state.blocks[slot].shared.words);
    free(state.blocks[slot].shared.parts);
  }
  for (int i = 0; i < state.launch->allocation_count; ++i) {
    free(state.allocations[i].words);
    free(state.allocations[i].parts);
  }
  free(state.allocations);
  free(state.grid_arrivals);
  free(state.block_order);
  free(state.runnable);
  free(state.threads);
  free(state.blocks);
}

static int run_launch(const Launch& launch, void (*kernel)(void*), void* kernel_call) {
  state.launch = &launch;
  state.kernel = kernel;
  state.kernel_call = kernel_call;
  state.random = (launch.seed + 1) * 0x9e3779b97f4a7c15ull;  // spreads small seeds; xorshift must not begin with zero
  if (state.random == 0) state.random = 1;
  state.faults = state.message_length = state.idle_sleeps = 0;
  state.message_count = 0;
  state.stopped = false;
  state.until_switch = draw_until_switch();
  if (launch.message_bytes > 0) launch.messages[0] = 0;
  if (launch.grid == 0 || launch.block == 0 || launch.block > kMostThreads || launch.shared_bytes < 0) {
    report("launch", "", 0, "%u blocks of %u threads with %lld bytes of shared memory cannot be launched", launch.grid, launch.block,
           launch.shared_bytes);
    return 1;
  }
  const unsigned blocks = launch.resident_blocks != 0 && launch.resident_blocks < launch.grid ? launch.resident_blocks : launch.grid;
  if (!reserve_stacks(static_cast<long long>(blocks) * launch.block * kStackBytes)) {
    report("launch", "", 0, "no memory for the stacks of %u resident blocks of %u threads", blocks, launch.block);
    return 1;
  }
  block_size.x = launch.block;
  grid_size.x = launch.grid;
  make_state(launch);
  schedule();
  free_state();
  return state.faults > INT32_MAX ? INT32_MAX : static_cast<int>(state.faults);
}

// Runs kernel_call() in every thread of the launch. Returns the number of faults, not fewer than there are messages.
template <class F>
int launch(const Launch& request, F kernel_call) {
  return run_launch(request, [](void* call) { (*static_cast<F*>(call))(); }, &kernel_call);
}

// ---- values through shuffles -------------------------------------------------------------------------------------------------

template <class T>
inline T shuffle(WarpOperation of_4_bytes, WarpOperation of_8_bytes, unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as in CUDA");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(sizeof(T) == 4 ? of_4_bytes : of_8_bytes, mask, source, bits);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulator

// ---- the names of CUDA -------------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size

static inline void __syncthreads() { emulator::block_barrier(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulator::warp_operation(emulator::WarpOperation::kSync, mask, 0, 0);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(emulator::warp_operation(emulator::WarpOperation::kBallot, mask, 0, predicate != 0));
}
static inline int __popc(unsigned value) { return __builtin_popcount(value); }
static inline int __ffs(int value) { return __builtin_ffs(value); }
static inline void __threadfence() { asm volatile("" ::: "memory"); }
static inline void __nanosleep(unsigned) { emulator::sleep_in_loop(); }
static inline unsigned atomicAdd(unsigned* address, unsigned value) { return emulator::add_atomically(address, value); }

// Functions of each type, as in CUDA, not templates: an element of a buffer then converts to its type.
#define STITCH_EMULATOR_SHUFFLES(T)                                                                                \
  static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {                                         \
    return emulator::shuffle(emulator::WarpOperation::kXor4, emulator::WarpOperation::kXor8, mask, value,          \
                             threadIdx.x % emulator::kWarpLanes ^ static_cast<unsigned>(lane_mask));               \
  }                                                                                                                \
  static inline T __shfl_sync(unsigned mask, T value, int source_lane) {                                           \
    return emulator::shuffle(emulator::WarpOperation::kShuffle4, emulator::WarpOperation::kShuffle8, mask, value,  \
                             static_cast<unsigned>(source_lane) % emulator::kWarpLanes);                           \
  }
STITCH_EMULATOR_SHUFFLES(int)
STITCH_EMULATOR_SHUFFLES(unsigned)
STITCH_EMULATOR_SHUFFLES(long)
STITCH_EMULATOR_SHUFFLES(unsigned long)
STITCH_EMULATOR_SHUFFLES(long long)
STITCH_EMULATOR_SHUFFLES(unsigned long long)
STITCH_EMULATOR_SHUFFLES(float)
STITCH_EMULATOR_SHUFFLES(double)
#undef STITCH_EMULATOR_SHUFFLES

static inline bool stitch_is_Min(int a, int b) { return a < b; }
static inline bool stitch_is_Max(int a, int b) { return a > b; }
#define STITCH_ATOMIC(kind, buffer, index, value) emulator::update_atomically(buffer, index, value, stitch_is_##kind)
#define STITCH_GLOBAL(T, name, pointer, elements) \
  const emulator::Buffer<T> name { emulator::declare_global(#name, pointer, elements, sizeof(T)) }
#define STITCH_GLOBAL_CONST(T, name, pointer, elements) \
  const emulator::ConstBuffer<T> name { emulator::declare_global(#name, pointer, elements, sizeof(T)) }
#define STITCH_SHARED(T, name, offset, elements) \
  const emulator::Buffer<T> name { emulator::declare_shared(#name, offset, elements, sizeof(T)) }
#define STITCH_LOAD_VECTOR(T, N, name, buffer, index)       \
  StitchVector<T, N> name;                                  \
  emulator::check_vector(buffer, index, sizeof(name));      \
  for (int place = 0; place < N; ++place) name.value[place] = buffer[(index) + place]
#define STITCH_STORE_VECTOR(T, N, buffer, index, vector)    \
  emulator::check_vector(buffer, index, sizeof(vector));    \
  for (int place = 0; place < N; ++place) buffer[(index) + place] = vector.value[place]
#define STITCH_GRID_BARRIER_BEGIN() emulator::begin_grid_barrier()
#define STITCH_GRID_BARRIER_END() emulator::end_grid_barrier()

#pragma GCC visibility pop

#endif  // STITCHFLEET_TESTS_COMPILER_CUDA_EMULATOR_H_
