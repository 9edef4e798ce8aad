#include "op/large_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace stitchfleet {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kLeastBytes = 1 << 20;  // smaller blocks stay in malloc's heap
constexpr size_t kUnit = 64 << 10;
constexpr std::chrono::seconds kGivenAfter(1);
// Blocks of several sizes that are never in use together are all kept: at most so many times what was in use at once. Once they are
// idle, the system can take them.
constexpr int64_t kKeptTimes = 2;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Fresh memory at the beginning of a huge page; null if there is none.
void* Map(size_t bytes) {
  const size_t room = bytes + kHugePage;
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  char* const aligned = reinterpret_cast<char*>(RoundUp(reinterpret_cast<size_t>(begin), kHugePage));
  if (aligned > begin) munmap(begin, aligned - begin);
  munmap(aligned + bytes, begin + room - (aligned + bytes));
#ifdef MADV_HUGEPAGE
  madvise(aligned, bytes, MADV_HUGEPAGE);  // refused where huge pages are off: then it has pages of 4 KiB
#endif
  return aligned;
}

bool IsLarge(tensorflow::DataType dtype, const tensorflow::TensorShape& shape) {
  return static_cast<size_t>(shape.num_elements()) * tensorflow::DataTypeSize(dtype) >= kLeastBytes;
}

}  // namespace

LargeBuffers& LargeBuffers::Get() {
  static LargeBuffers* const buffers = new LargeBuffers;
  return *buffers;
}

void* LargeBuffers::AllocateRaw(size_t alignment, size_t bytes) {
  if (bytes < kLeastBytes || alignment > kHugePage) return tensorflow::cpu_allocator()->AllocateRaw(alignment, bytes);
  const size_t room = RoundUp(bytes, kUnit);
  std::lock_guard<std::mutex> lock(mutex_);
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const bool fits = block->bytes >= room && block->bytes - room <= room / 4;
    if (fits && (best == free_.end() || block->bytes <= best->bytes)) best = block;  // of equal ones the latest: it may be in a cache
  }
  void* address = nullptr;
  size_t taken = room;
  if (best != free_.end()) {
    address = best->address;
    taken = best->bytes;
    free_bytes_ -= taken;
    free_.erase(best);
    ++reused_;
  } else {
    address = Map(room);
    if (address == nullptr) return tensorflow::cpu_allocator()->AllocateRaw(alignment, bytes);
    ++fresh_;
  }
  live_.emplace(address, taken);
  live_bytes_ += taken;
  most_live_bytes_ = std::max(most_live_bytes_, live_bytes_);
  return address;
}

void LargeBuffers::DeallocateRaw(void* pointer) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = live_.find(pointer);
  if (found == live_.end()) {
    lock.unlock();
    tensorflow::cpu_allocator()->DeallocateRaw(pointer);
    return;
  }
  const size_t bytes = found->second;
  live_.erase(found);
  live_bytes_ -= bytes;
  free_.push_back({pointer, bytes, Clock::now()});
  free_bytes_ += bytes;
  while (live_bytes_ + free_bytes_ > kKeptTimes * most_live_bytes_ && free_.size() > 1) Release(free_.begin());
}

void LargeBuffers::Trim(std::chrono::nanoseconds idle) {
  const Clock::time_point now = Clock::now();
  std::lock_guard<std::mutex> lock(mutex_);
  while (!free_.empty() && free_.front().freed <= now - idle) Release(free_.begin());
  if (free_.empty()) most_live_bytes_ = live_bytes_;
#ifdef MADV_FREE
  for (auto block = free_.begin(); block != free_.end() && block->freed <= now - kGivenAfter; ++block) {
    if (!block->given) block->given = madvise(block->address, block->bytes, MADV_FREE) == 0;
  }
#endif
}

LargeBuffers::Counters LargeBuffers::counters() {
  std::lock_guard<std::mutex> lock(mutex_);
  return {live_bytes_, free_bytes_, fresh_, reused_};
}

void LargeBuffers::Release(std::list<Block>::iterator block) {
  munmap(block->address, block->bytes);
  free_bytes_ -= block->bytes;
  free_.erase(block);
}

Status AllocateLargeOutput(tensorflow::OpKernelContext* ctx, int output, const tensorflow::TensorShape& shape, tensorflow::Tensor** made) {
  const tensorflow::DataType dtype = ctx->expected_output_dtype(output);
  if (IsLarge(dtype, shape)) {
    tensorflow::Tensor large(&LargeBuffers::Get(), dtype, shape);
    if (large.IsInitialized()) {
      ctx->set_output(output, large);
      *made = ctx->mutable_output(output);
      return Ok();
    }
  }
  return ctx->allocate_output(output, shape, made);
}

Status AllocateLargeTemporary(tensorflow::OpKernelContext* ctx, tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                         tensorflow::Tensor* made) {
  if (IsLarge(dtype, shape)) {
    tensorflow::Tensor large(&LargeBuffers::Get(), dtype, shape);
    if (large.IsInitialized()) {
      *made = std::move(large);
      return Ok();
    }
  }
  return ctx->allocate_temp(dtype, shape, made);
}

}  // namespace stitchfleet

extern "C" {

// Releases the large buffers that have been free for `idle_seconds`. Stores the bytes that are in use and that are free now, and how
// many buffers were mapped and how many used again so far.
void stitchfleet_trim_buffers(double idle_seconds, int64_t counters[4]) {
  auto& buffers = stitchfleet::LargeBuffers::Get();
  buffers.Trim(std::chrono::nanoseconds(static_cast<int64_t>(idle_seconds * 1e9)));
  const auto now = buffers.counters();
  counters[0] = now.live_bytes;
  counters[1] = now.free_bytes;
  counters[2] = now.fresh;
  counters[3] = now.reused;
}

}  // extern "C"
