// Executes a kernel that translate.py has written in C++ from PTX. Every CUDA thread is a fibre; all run on one OS thread, in an
// order that a seed decides: random, interrupted at some accesses, and, if the launch asks for it, with some threads starved. Blocks
// that are resident together are interleaved, so that a grid barrier really waits.
//
// Reported, one line each, with the instruction's text (what an access, not a line of the source, did wrong):
//   out of bounds   an access outside every allocation, the block's shared memory, the thread's local memory or the parameters;
//                   ends the launch
//   misaligned      an access at no multiple of its size, a vector's of the vector's; ends the launch
//   read-only       a write of an input or a constant, or an ld.global.nc of what the launch writes
//   uninitialised   a read of shared memory, of scratch or of an output that nobody has written
//   data race       two accesses of one element by different threads, one at least a write, that no synchronisation orders
//   divergence      a warp operation or barrier at which threads meet with different instructions, or whose mask does not name the
//                   caller or the lane that it reads
//   thread exit     a thread that has ended while others wait for it
//   grid barrier    a block that leaves the barrier before all have arrived, or arrives or leaves without a fence
//   deadlock        every thread waits; ends the launch
//   no end          more turns of loops than the launch allows; ends the launch
//
// Races are found by what orders the accesses: bar.sync the threads of a block, bar.warp.sync those of its mask (a shuffle and a vote
// order nothing), a grid barrier all. An element's last write and two of its reads are remembered, and of atomics the last one.
//
// Not seen: reads of registers and of local memory that were never written (they hold a pattern); weak memory order but for the grid
// barrier's fences: each access happens at once and for all.

#ifndef STITCHFLEET_TESTS_COMPILER_PTX_RUNTIME_H_
#define STITCHFLEET_TESTS_COMPILER_PTX_RUNTIME_H_

#if !defined(__x86_64__) || !defined(__linux__)
#error "the fibres switch stacks as x86-64 Linux does"
#endif

#include <sys/mman.h>

#include <cfenv>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#pragma GCC visibility push(hidden)

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

enum Kind { INPUT, MEMORY, SEMAPHORE, CONSTANT };

struct Allocation {
  u64 base, bytes;
  u32 granule;  // bytes of an element: what races and reads are told by
  int kind;
};

struct Launch {
  const char* params;
  u64 param_bytes;
  const Allocation* allocations;
  u32 allocation_count;
  u32 grid, block, shared_bytes;
  u32 resident;  // blocks that are live at a time
  u64 seed;
  u32 switch_per_mille;  // how often a thread is interrupted at an access
  u32 starve;            // whether some threads run much more rarely than others
  u32 mutant;            // which mutant runs; 0: the kernel itself
  u64 most_turns;        // of all loops of all threads
  u8* reached;           // by mutant: whether its place was executed
  char* messages;
  u64 message_bytes;
};

// ---- values ----

template <class T, class R> static inline T as(R bits) { return (T)bits; }
template <> inline float as<float, u32>(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
template <> inline float as<float, u64>(u64 bits) { return as<float, u32>((u32)bits); }
template <> inline double as<double, u64>(u64 bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
template <class R, class T> static inline void set(R& target, T value) { target = (R)value; }
template <class R> static inline void set(R& target, float value) {
  static_assert(sizeof(R) == 4, "a float in another register");
  memcpy(&target, &value, 4);
}
template <class R> static inline void set(R& target, double value) {
  static_assert(sizeof(R) == 8, "a double in another register");
  memcpy(&target, &value, 8);
}

static inline float from_f16(u16 half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  float value;
  if (exponent == 31) value = mantissa ? NAN : INFINITY;
  else value = exponent ? std::ldexp((float)(mantissa + 1024), exponent - 25) : std::ldexp((float)mantissa, -24);
  return half >> 15 ? -value : value;
}
static inline u16 to_f16(float value) {  // to nearest, ties to even
  const u16 sign = std::signbit(value) ? 0x8000 : 0;
  if (value != value) return 0x7fff;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | (u16)std::nearbyint(std::ldexp(size, 24));  // a carry makes the smallest normal one
  int exponent;
  const float fraction = std::frexp(size, &exponent);  // 0.5 <= fraction < 1
  return sign | (u16)(((exponent + 13) << 10) + (int)std::nearbyint(std::ldexp(fraction, 11)));
}
static inline float from_bf16(u16 half) { return as<float, u32>((u32)half << 16); }
static inline u16 to_bf16(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  return value != value ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <class I, class X> static inline I to_int(X x) {  // x is whole; saturates, and a NaN is 0 (64 bits: the smallest)
  const bool has_sign = (I)-1 < (I)0;
  const int width = sizeof(I) * 8;
  const I least = has_sign ? (I)((I)1 << (width - 1)) : (I)0, most = (I)~least;
  if (x != x) return sizeof(I) == 8 ? (I)((u64)1 << 63) : (I)0;
  if ((double)x <= (has_sign ? -std::ldexp(1.0, width - 1) : 0.0)) return least;
  if ((double)x >= std::ldexp(1.0, has_sign ? width - 1 : width)) return most;
  return (I)x;
}
template <class X> static inline X least_of(X a, X b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class X> static inline X most_of(X a, X b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
// Rounds towards zero. Volatile, so that nothing is computed while another mode holds.
template <class X> static __attribute__((noinline)) X towards_zero(char operation, X a, X b, X c = 0) {
  volatile X x = a, y = b, z = c, result;
  fesetround(FE_TOWARDZERO);
  result = operation == '+' ? x + y : operation == '-' ? x - y : operation == '*' ? x * y : std::fma(x, y, z);
  fesetround(FE_TONEAREST);
  return result;
}
static inline float flushed(float value) { return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }
// The nearest float, or a neighbour of it: what a device may give whose error is one unit in the last place.
static inline float approximate(double exact) {
  const float nearest = (float)exact;
  u32 bits;
  memcpy(&bits, &nearest, 4);
  const u32 which = bits * 2654435761u >> 30;
  if (nearest == 0 || !std::isfinite(nearest) || which > 1) return flushed(nearest);
  return flushed(std::nextafter(nearest, which ? INFINITY : -INFINITY));
}
// The sum a + b + more, whose carry becomes `carry`. T is unsigned.
template <class T> static inline T sum_with_carry(bool& carry, T a, T b, bool more) {
  const T sum = a + b, all = sum + more;
  carry = sum < a || all < sum;
  return all;
}
// The difference a - b - more, whose borrow becomes `carry`.
template <class T> static inline T difference_with_borrow(bool& carry, T a, T b, bool more) {
  carry = a < b || (a == b && more);
  return a - b - more;
}
template <class T> static inline T quotient(T x, T y) {
  if (y == 0) return (T)-1;
  return (T)-1 < (T)0 && y == (T)-1 ? (T)(0 - (u64)x) : (T)(x / y);
}
template <class T> static inline T remainder_of(T x, T y) {
  if (y == 0) return x;
  return (T)-1 < (T)0 && y == (T)-1 ? (T)0 : (T)(x % y);
}
template <class T> static inline T shift_left(T a, u32 n) { return n >= sizeof(T) * 8 ? (T)0 : (T)(a << n); }
template <class T> static inline T shift_right(T a, u32 n) {
  return n >= sizeof(T) * 8 ? (a < 0 ? (T)-1 : (T)0) : (T)(a >> n);
}
static inline u32 funnel_left(u32 low, u32 high, u32 n) { return (u32)((((u64)high << 32 | low) << n) >> 32); }
static inline u32 permuted(u32 a, u32 b, u32 selectors) {
  const u64 both = (u64)b << 32 | a;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 selector = selectors >> (4 * i) & 15;
    u8 byte = (u8)(both >> (8 * (selector & 7)));
    if (selector & 8) byte = byte & 128 ? 255 : 0;
    result |= (u32)byte << (8 * i);
  }
  return result;
}
template <class T> static inline T field_inserted(T field, T into, u32 position, u32 length) {
  position &= 255, length &= 255;
  T result = into;
  for (u32 i = 0; i < length && position + i < sizeof(T) * 8; ++i) {
    const T bit = (T)1 << (position + i);
    result = (result & ~bit) | (field >> i & 1 ? bit : (T)0);
  }
  return result;
}
template <class T> static inline T field_of(T value, u32 position, u32 length) {  // T is signed: the sign is extended
  typedef typename std::make_unsigned<T>::type U;
  position &= 255, length &= 255;
  const u32 width = sizeof(T) * 8, top = position + length - 1;
  const bool sign = (T)-1 < (T)0 && length && (U)value >> (top < width ? top : width - 1) & 1;
  U result = 0;
  for (u32 i = 0; i < width; ++i) {
    const bool bit = i < length && position + i < width ? (U)value >> (position + i) & 1 : sign;
    result |= (U)bit << i;
  }
  return (T)result;
}
template <class T> static inline T reversed(T value) {
  T result = 0;
  for (u32 i = 0; i < sizeof(T) * 8; ++i) result |= (value >> i & 1) << (sizeof(T) * 8 - 1 - i);
  return result;
}
static inline u32 leading_zeros(u64 value, int width) { return value ? __builtin_clzll(value) - (64 - width) : width; }
template <class T> static inline u32 highest(T value) {  // the place of the highest bit that differs from the sign
  const u64 bits = (typename std::make_unsigned<T>::type)(value < 0 ? ~value : value);
  return bits ? 63 - __builtin_clzll(bits) : 0xffffffffu;
}
static inline u32 logic(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  for (int i = 0; i < 8; ++i) {
    if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

// ---- threads, blocks and memory ----

struct Stamp {
  u32 bars;
  u16 thread, block, grid, warp;
};
struct Cell {
  Stamp write, read[2];
  u8 flags;
};
enum { WRITTEN_BEFORE = 1, WRITTEN = 2, BY_ATOMIC = 4, NON_COHERENT = 8, READ = 16 /* and 32: the second reader */ };

struct Space {
  Allocation of;
  Cell* cells;
  u64 mapped;
};

enum State { READY, AT_BARRIER, AT_SHUFFLE, AT_VOTE, AT_WARP_BARRIER, DONE };
static const char* const STATES[] = {"ready", "in a barrier", "in a shuffle", "in a vote", "in a warp barrier", "done"};

struct Block;
struct Thread {
  void* stack_pointer;
  Block* block;
  u32 number, lane;
  State state;
  int site;  // of the instruction in which it waits
  bool is_slow;
  u32 mask, value, operand, clamp;  // of a warp operation
  int mode;
  u32 result;
  bool valid;
  u32 bars;       // block barriers passed
  u16 clock[32];  // what it knows of each lane's warp barriers; its own: 1 more than it has passed
  bool fenced;    // since its last barrier or arrival
};
struct Block {
  u32 number;
  std::vector<Thread> threads;
  std::vector<char> memory;
  Space shared;
  u32 grids;  // grid barriers passed
  bool arriving;
  u32 done;
};
struct Arrival {
  u32 thread, bars;
};

static const u64 SHARED_WINDOW = 4096;  // the address of shared memory
static const u64 STACK_BYTES = 256 << 10;
static const u32 MOST_MESSAGES = 12;
static const u32 IDLE_ROUNDS = 20000;  // in which threads only poll: a deadlock

static Launch launched;
static std::vector<Space> spaces;
static std::vector<std::vector<Arrival>> arrivals;  // of each block at the grid barriers
static std::vector<std::string> messages;
static std::set<std::string> said;
static u64 random_state, turns, events;
static Thread* current;
static void* scheduler;
static bool ended;
static void (*kernel_entry)(Thread&, const char*);
static const char* const* site_texts;

static u32 random_number() {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(random_state >> 33);
}

static void say(int site, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void say(int site, const char* format, ...) {
  char text[400];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  std::string kind(text, strcspn(text, ":"));
  if (messages.size() >= MOST_MESSAGES || !said.insert(kind + std::to_string(site)).second) return;
  std::string line = text;
  if (current) line += ", block " + std::to_string(current->block->number) + " thread " + std::to_string(current->number);
  if (site >= 0) line += std::string(": ") + site_texts[site];
  messages.push_back(line);
}

extern "C" void ptx_switch(void** from, void* to);
asm(R"(
.text
.local ptx_switch
ptx_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
static __attribute__((noinline)) void yield() { ptx_switch(&current->stack_pointer, scheduler); }
static void wait_in(State state, int site) {
  current->state = state;
  current->site = site;
  ++events;
  yield();
}
static void fibre() {
  Thread* self = current;
  kernel_entry(*self, launched.params);
  self->state = DONE;
  self->block->done++;
  ++events;
  for (;;) yield();
}
static __attribute__((noinline)) void end_launch() {
  ended = true;
  for (;;) yield();
}
static inline void turn(int site) {
  if (++turns > launched.most_turns) {
    say(site, "no end: %llu turns of loops", (unsigned long long)launched.most_turns);
    end_launch();
  }
}

// Whether a mutant runs, asked at its place.
static inline bool is_mutant(u32 number) {
  launched.reached[number] = 1;
  return launched.mutant == number;
}

static Stamp now() {
  const Thread& t = *current;
  return Stamp{t.bars, (u16)t.number, (u16)t.block->number, (u16)t.block->grids, t.clock[t.lane]};
}
static bool is_mine(const Stamp& s) { return s.thread == current->number && s.block == current->block->number; }
// Whether what the stamp marks is ordered before what this thread does now.
static bool is_ordered(const Stamp& s) {
  const Thread& t = *current;
  if (s.block == t.block->number) {
    if (s.thread == t.number || t.bars > s.bars) return true;
    return s.thread / 32 == t.number / 32 && t.clock[s.thread % 32] >= s.warp;
  }
  const std::vector<Arrival>& all = arrivals[s.block];
  if (t.block->grids <= s.grid || all.size() <= s.grid) return false;
  return s.thread == all[s.grid].thread || s.bars < all[s.grid].bars;
}

enum Access { LOAD, LOAD_NON_COHERENT, STORE, ATOMIC };

static void race(int site, u64 offset, const char* did, const char* other, const Stamp& s) {
  say(site, "data race: byte %llu %s, which block %u thread %u has %s", (unsigned long long)offset, did, s.block, s.thread, other);
}
static void note(Space& space, u64 address, u64 bytes, Access access, int site) {
  const u32 granule = space.of.granule;
  const u64 from = address - space.of.base;
  for (u64 k = from / granule; k <= (from + bytes - 1) / granule; ++k) {
    Cell& cell = space.cells[k];
    const u64 at = k * granule;
    const bool unordered_write = cell.flags & WRITTEN && !is_ordered(cell.write);
    if (access != STORE && !(cell.flags & WRITTEN_BEFORE)) say(site, "uninitialised: byte %llu is read", (unsigned long long)at);
    if (access == STORE || access == ATOMIC) {
      if (unordered_write && !(access == ATOMIC && cell.flags & BY_ATOMIC)) race(site, at, "is written", "written", cell.write);
      for (int r = 0; r < 2; ++r) {
        if (cell.flags & READ << r && !is_ordered(cell.read[r])) race(site, at, "is written", "read", cell.read[r]);
      }
      if (cell.flags & NON_COHERENT) say(site, "read-only: byte %llu was read by ld.global.nc", (unsigned long long)at);
      cell.flags = (cell.flags & ~BY_ATOMIC) | WRITTEN_BEFORE | WRITTEN | (access == ATOMIC ? BY_ATOMIC : 0);
      cell.write = now();
    } else {
      if (unordered_write) race(site, at, "is read", "written", cell.write);
      if (access == LOAD_NON_COHERENT) {
        if (cell.flags & WRITTEN) say(site, "read-only: byte %llu was written by this launch", (unsigned long long)at);
        cell.flags |= NON_COHERENT;
      }
      const int r = !(cell.flags & READ) || is_mine(cell.read[0]) || is_ordered(cell.read[0]) ? 0 : 1;
      cell.flags |= READ << r;
      cell.read[r] = now();
    }
  }
}
static inline void interrupt() {
  if (launched.switch_per_mille && random_number() % 1000 < launched.switch_per_mille) yield();
}
static Space* space_of(u64 address, u64 bytes) {
  static u32 last;
  for (u32 i = 0; i <= spaces.size(); ++i) {
    const u32 k = i ? i - 1 : last;
    if (k >= spaces.size()) continue;
    const Allocation& of = spaces[k].of;
    if (address >= of.base && address + bytes <= of.base + of.bytes) return last = k, &spaces[k];
  }
  return nullptr;
}
static void check_alignment(const char* what, u64 address, u64 bytes, int site) {
  if (address % bytes == 0) return;
  say(site, "misaligned: %llu bytes of %s memory at an address that is %llu beyond a multiple", (unsigned long long)bytes, what,
      (unsigned long long)(address % bytes));
  end_launch();
}
static void out_of_bounds(const char* what, s64 place, u64 bytes, int site) {
  say(site, "out of bounds: %llu bytes of %s memory at %lld", (unsigned long long)bytes, what, (long long)place);
  end_launch();
}
static bool is_semaphore;  // what global() was asked for last
static inline char* global(u64 address, u64 bytes, Access access, int site) {
  interrupt();
  check_alignment("global", address, bytes, site);
  Space* space = space_of(address, bytes);
  if (!space) out_of_bounds("global", (s64)address, bytes, site);
  is_semaphore = space->of.kind == SEMAPHORE;
  if (!is_semaphore) ++events;
  const bool writes = access == STORE || access == ATOMIC;
  if (writes && (space->of.kind == INPUT || space->of.kind == CONSTANT)) {
    say(site, "read-only: byte %llu of an input is written", (unsigned long long)(address - space->of.base));
    end_launch();
  }
  if (is_semaphore && access == STORE) say(site, "grid barrier: the semaphore is written by a store");
  if (space->cells) note(*space, address, bytes, access, site);
  return (char*)address;
}
static inline char* constant(u64 address, u64 bytes, int site) {
  check_alignment("constant", address, bytes, site);
  Space* space = space_of(address, bytes);
  if (!space || space->of.kind != CONSTANT) out_of_bounds("constant", (s64)address, bytes, site);
  return (char*)address;
}
static inline char* shared(Thread& t, u64 address, u64 bytes, Access access, int site) {
  interrupt();
  ++events;
  check_alignment("shared", address, bytes, site);
  if (address < SHARED_WINDOW || address + bytes > SHARED_WINDOW + launched.shared_bytes) {
    out_of_bounds("shared", (s64)(address - SHARED_WINDOW), bytes, site);
  }
  note(t.block->shared, address, bytes, access, site);
  return t.block->memory.data() + (address - SHARED_WINDOW);
}
static inline char* within(const char* what, u64 address, u64 bytes, const char* base, u64 size, int site) {
  check_alignment(what, address, bytes, site);
  if (address < (u64)base || address + bytes > (u64)base + size) out_of_bounds(what, (s64)(address - (u64)base), bytes, site);
  return (char*)address;
}
template <class T> static inline T load(const char* place) {
  T value;
  memcpy(&value, place, sizeof value);
  return value;
}
template <class T> static inline void store(char* place, T value) { memcpy(place, &value, sizeof value); }

template <class T> static T atomic(Thread& t, u64 address, int site, char operation, T value, T swap = 0) {
  char* place = global(address, sizeof(T), ATOMIC, site);
  const T old = load<T>(place);
  T next = value;
  if (operation == '+') next = (T)(old + value);
  if (operation == '<') next = value < old ? value : old;
  if (operation == '>') next = value > old ? value : old;
  if (operation == '&') next = (T)((u64)old & (u64)value);
  if (operation == '|') next = (T)((u64)old | (u64)value);
  if (operation == '?') next = old == value ? swap : old;
  store<T>(place, next);
  if (is_semaphore) {
    if (!t.fenced) say(site, "grid barrier: no fence since the block's barrier");
    t.fenced = false;
    t.block->arriving = true;
    arrivals[t.block->number].push_back(Arrival{t.number, t.bars});
    ++events;
  }
  return old;
}

// ---- synchronisation ----

static void barrier(int site) { wait_in(AT_BARRIER, site); }
static void fence(Thread& t) { t.fenced = true; }
static void name_oneself(u32 mask, int site) {
  if (mask >> current->lane & 1) return;
  say(site, "divergence: mask 0x%x does not name the caller", mask);
  end_launch();
}
static void warp_barrier(u32 mask, int site) {
  name_oneself(mask, site);
  current->mask = mask;
  wait_in(AT_WARP_BARRIER, site);
}
static u32 vote(bool value, u32 mask, int site) {
  name_oneself(mask, site);
  current->mask = mask;
  current->value = value;
  wait_in(AT_VOTE, site);
  return current->result;
}
enum ShuffleMode { UP, DOWN, BUTTERFLY, INDEX };
static u32 shuffle(ShuffleMode mode, u32 value, u32 operand, u32 clamp, u32 mask, bool& valid, int site) {
  name_oneself(mask, site);
  Thread& t = *current;
  t.mask = mask, t.value = value, t.operand = operand, t.clamp = clamp, t.mode = mode;
  wait_in(AT_SHUFFLE, site);
  valid = current->valid;
  return current->result;
}
static int source_of(const Thread& t, bool& valid) {
  const int lane = (int)t.lane, operand = t.operand & 31, clamp = t.clamp & 31, segment = t.clamp >> 8 & 31;
  const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
  int source = lane;
  if (t.mode == UP) source = lane - operand, valid = source >= most;
  else if (t.mode == DOWN) source = lane + operand, valid = source <= most;
  else if (t.mode == BUTTERFLY) source = lane ^ operand, valid = source <= most;
  else source = least | (operand & ~segment), valid = source <= most;
  return valid ? source : lane;
}
static bool fault(Thread& t, const char* what) {
  current = &t;
  say(t.site, "%s", what);
  ended = true;
  return false;
}
// Whether a group of the warp's threads went on.
static bool resolve_warp(Block& b, u32 first) {
  bool any = false;
  for (u32 l = 0; l < 32 && first + l < launched.block; ++l) {
    Thread& t = b.threads[first + l];
    if (t.state != AT_SHUFFLE && t.state != AT_VOTE && t.state != AT_WARP_BARRIER) continue;
    const State state = t.state;
    const u32 mask = t.mask;
    bool all = true;
    for (u32 k = 0; k < 32 && all; ++k) {
      if (!(mask >> k & 1)) continue;
      if (first + k >= launched.block) return fault(t, "divergence: the mask names a thread that is not there");
      const Thread& o = b.threads[first + k];
      if (o.state == DONE) return fault(t, "thread exit: the mask names a thread that has ended");
      all = o.state == state && o.site == t.site && o.mask == mask;
    }
    if (!all) continue;
    u32 votes = 0;
    u16 known[32] = {};
    for (u32 k = 0; k < 32; ++k) {
      if (!(mask >> k & 1)) continue;
      const Thread& o = b.threads[first + k];
      votes |= (o.value & 1) << k;
      for (int i = 0; i < 32; ++i) known[i] = o.clock[i] > known[i] ? o.clock[i] : known[i];
    }
    for (u32 k = 0; k < 32; ++k) {
      if (!(mask >> k & 1)) continue;
      Thread& o = b.threads[first + k];
      if (state == AT_VOTE) o.result = votes;
      if (state == AT_SHUFFLE) {
        const int source = source_of(o, o.valid);
        if (!(mask >> source & 1)) return fault(o, "divergence: a lane is read that takes no part");
        o.result = b.threads[first + source].value;
      }
      if (state == AT_WARP_BARRIER) {
        memcpy(o.clock, known, sizeof known);
        o.clock[k]++;
      }
    }
    for (u32 k = 0; k < 32; ++k) {
      if (mask >> k & 1) b.threads[first + k].state = READY;
    }
    any = true;
  }
  return any;
}
static bool resolve_barrier(Block& b) {
  Thread* waiting = nullptr;
  u32 count = 0;
  bool same = true;
  for (Thread& t : b.threads) {
    if (t.state != AT_BARRIER) continue;
    same = same && (!waiting || waiting->site == t.site);
    waiting = &t;
    ++count;
  }
  if (!waiting || count + b.done < launched.block) return false;
  current = waiting;
  if (b.done) say(waiting->site, "thread exit: %u threads have ended before a barrier", b.done);
  if (!same) say(waiting->site, "divergence: a block's threads wait in different barriers");
  if (b.arriving) {
    b.arriving = false;
    const Arrival& arrival = arrivals[b.number].back();
    if (!b.threads[arrival.thread].fenced) say(waiting->site, "grid barrier: no fence before the block goes on");
    b.grids = (u32)arrivals[b.number].size();
    for (const std::vector<Arrival>& all : arrivals) {
      if (all.size() < b.grids) {
        say(waiting->site, "grid barrier: left before all blocks have arrived");
        break;
      }
    }
  }
  for (Thread& t : b.threads) {
    t.fenced = false;
    if (t.state == AT_BARRIER) t.state = READY, t.bars++;
  }
  return true;
}

// ---- a launch ----

static Space space_at(const Allocation& of) {
  Space space{of, nullptr, 0};
  if (of.kind != MEMORY) return space;
  space.mapped = (of.bytes / of.granule + 2) * sizeof(Cell);
  space.cells = (Cell*)mmap(0, space.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return space;
}
static Block* begin_block(u32 number, char* stacks) {
  Block* b = new Block();
  b->number = number;
  b->threads.resize(launched.block);
  b->memory.assign(launched.shared_bytes + 64, (char)0xB7);
  b->shared = space_at(Allocation{SHARED_WINDOW, launched.shared_bytes, 1, MEMORY});
  for (u32 i = 0; i < launched.block; ++i) {
    Thread& t = b->threads[i];
    t.block = b;
    t.number = i;
    t.lane = i & 31;
    t.clock[t.lane] = 1;
    t.is_slow = launched.starve && random_number() % 12 == 0;
    void** top = (void**)(stacks + (i + 1) * STACK_BYTES - 64);
    *--top = nullptr;
    *--top = (void*)fibre;
    for (int k = 0; k < 6; ++k) *--top = nullptr;
    t.stack_pointer = top;
  }
  return b;
}
static void say_deadlock(const std::vector<std::pair<u32, Block*>>& running, u32 to_start) {
  for (const auto& each : running) {
    for (Thread& t : each.second->threads) {
      if (t.state == DONE) continue;
      current = &t;
      say(t.state == READY ? -1 : t.site, "deadlock: a thread is %s; %u blocks have not started", STATES[t.state], to_start);
      return;
    }
  }
}
static void run_blocks(char* stacks, u32 resident) {
  std::vector<u32> free_slots;
  for (u32 i = 0; i < resident; ++i) free_slots.push_back(i);
  std::vector<std::pair<u32, Block*>> running;
  u32 next = 0, idle = 0;
  while (!ended && (next < launched.grid || !running.empty())) {
    while (!free_slots.empty() && next < launched.grid) {
      const u32 slot = free_slots.back();
      free_slots.pop_back();
      running.push_back({slot, begin_block(next++, stacks + (u64)slot * launched.block * STACK_BYTES)});
    }
    const u64 before = events;
    bool progressed = false;
    const u32 start = random_number() % running.size();
    for (u32 r = 0; r < running.size() && !ended; ++r) {
      Block& b = *running[(start + r) % running.size()].second;
      const u32 step = random_number() & 1 ? 1 : launched.block - 1;
      for (u32 i = 0, k = random_number() % launched.block; i < launched.block && !ended; ++i, k = (k + step) % launched.block) {
        Thread& t = b.threads[k];
        if (t.state != READY) continue;
        progressed = true;
        if (t.is_slow && random_number() & 31) continue;
        current = &t;
        ptx_switch(&scheduler, t.stack_pointer);
      }
      for (u32 w = 0; w < launched.block && !ended; w += 32) progressed |= resolve_warp(b, w);
      if (!ended) progressed |= resolve_barrier(b);
    }
    for (u32 r = 0; r < running.size();) {
      Block* b = running[r].second;
      if (b->done < launched.block) {
        ++r;
        continue;
      }
      free_slots.push_back(running[r].first);
      munmap(b->shared.cells, b->shared.mapped);
      delete b;
      running[r] = running.back();
      running.pop_back();
      progressed = true;
    }
    idle = events == before ? idle + 1 : 0;
    if (!ended && (!progressed || idle > IDLE_ROUNDS)) {
      say_deadlock(running, launched.grid - next);
      ended = true;
    }
  }
  for (const auto& each : running) {
    munmap(each.second->shared.cells, each.second->shared.mapped);
    delete each.second;
  }
}
// The number of messages, or -1 if there is no memory for the stacks.
static int run_grid(const Launch& launch, void (*kernel)(Thread&, const char*), const char* const* texts,
                    const std::vector<Allocation>& constants) {
  launched = launch;
  kernel_entry = kernel;
  site_texts = texts;
  random_state = launch.seed * 2 + 1;
  for (int i = 0; i < 9; ++i) random_number();
  spaces.clear(), messages.clear(), said.clear();
  arrivals.assign(launch.grid, {});
  turns = events = 0;
  ended = false;
  current = nullptr;
  for (u32 i = 0; i < launch.allocation_count; ++i) spaces.push_back(space_at(launch.allocations[i]));
  for (const Allocation& each : constants) spaces.push_back(space_at(each));
  const u32 resident = launch.resident && launch.resident < launch.grid ? launch.resident : launch.grid;
  const u64 stack_bytes = (u64)resident * launch.block * STACK_BYTES;
  void* stacks = mmap(0, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) return -1;
  run_blocks((char*)stacks, resident);
  munmap(stacks, stack_bytes);
  for (Space& space : spaces) {
    if (space.cells) munmap(space.cells, space.mapped);
  }
  std::string all;
  for (const std::string& each : messages) all += each + "\n";
  snprintf(launch.messages, launch.message_bytes, "%s", all.c_str());
  return (int)messages.size();
}

#pragma GCC visibility pop

#endif  // STITCHFLEET_TESTS_COMPILER_PTX_RUNTIME_H_
