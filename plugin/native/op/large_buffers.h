// Memory for large results of kernels, kept from step to step.
//
// TensorFlow's allocator on a CPU is malloc, and glibc's malloc gives a large block back to the operating system when it is freed:
// always one above 32 MiB, and smaller ones at the end of the heap. In the next step the kernel writes to pages that do not exist, and
// for each 4 KiB the operating system is called to clear one: 64 MiB took 39 ms, where writing to pages that exist takes 3. So the
// blocks stay here for the next results of about their size, on huge pages if the system allows that (10 ms for fresh ones). Blocks of
// all sizes stay, though a step needs less at once: a small convolutional net that had to map seven blocks anew in each step took 20%
// longer than plain, instead of 6% shorter.
//
// A block that has been free for a second is given to the system as MADV_FREE, which takes it if memory is short: before anything is
// killed for memory. Not earlier: a call of madvise costs as much as writing a block of 1 MiB (75 us beside 65), and the next step
// writes it again.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_LARGE_BUFFERS_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_LARGE_BUFFERS_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "versions/status.h"

namespace stitchfleet {

class LargeBuffers : public tensorflow::Allocator {
 public:
  // The process's own. It is never destroyed, as tensors in it may live longer than anything else.
  static LargeBuffers& Get();

  struct Counters {
    int64_t live_bytes, free_bytes;  // now
    int64_t fresh, reused;           // allocations so far
  };

  std::string Name() override { return "stitchfleet"; }
  // Small blocks, and all if the system has no memory to map, come from TensorFlow's allocator.
  void* AllocateRaw(size_t alignment, size_t bytes) override;
  void DeallocateRaw(void* pointer) override;

  // Releases the blocks that have been free for at least `idle`, and marks the blocks that have been free for a second as
  // MADV_FREE.
  void Trim(std::chrono::nanoseconds idle);
  Counters counters();

 private:
  using Clock = std::chrono::steady_clock;
  struct Block {
    void* address;
    size_t bytes;
    Clock::time_point freed;
    bool given = false;  // as MADV_FREE
  };

  void Release(std::list<Block>::iterator block);

  std::mutex mutex_;
  std::unordered_map<void*, size_t> live_;
  std::list<Block> free_;  // the longest free first
  int64_t live_bytes_ = 0, free_bytes_ = 0, most_live_bytes_ = 0, fresh_ = 0, reused_ = 0;
};

// A CPU device whose tensors are large buffers, for TensorFlow's kernels inside an op of ours. `device`: the op's own.
class DeviceWithLargeBuffers : public tensorflow::DeviceBase {
 public:
  explicit DeviceWithLargeBuffers(tensorflow::DeviceBase* device) : DeviceBase(device->env()), device_(device) {}

  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes) override { return &LargeBuffers::Get(); }

  const CpuWorkerThreads* tensorflow_cpu_worker_threads() const override { return device_->tensorflow_cpu_worker_threads(); }
  tensorflow::thread::ThreadPool* tensorflow_device_thread_pool() override { return device_->tensorflow_device_thread_pool(); }
  bool has_eigen_cpu_device() const override { return device_->has_eigen_cpu_device(); }
  const Eigen::ThreadPoolDevice* eigen_cpu_device() override { return device_->eigen_cpu_device(); }
  DeviceBase* UnderlyingDevice() override { return device_->UnderlyingDevice(); }
  const DeviceBase* UnderlyingDevice() const override { return device_->UnderlyingDevice(); }
  const tensorflow::DeviceAttributes& attributes() const override { return device_->attributes(); }
  const std::string& name() const override { return device_->name(); }
  const tensorflow::DeviceNameUtils::ParsedName& parsed_name() const override { return device_->parsed_name(); }

 private:
  tensorflow::DeviceBase* device_;
};

// Allocates an output of a kernel on the CPU; a large one comes from LargeBuffers.
Status AllocateLargeOutput(tensorflow::OpKernelContext* ctx, int output, const tensorflow::TensorShape& shape, tensorflow::Tensor** made);

// Allocates memory for one call of a kernel on the CPU; a large tensor comes from LargeBuffers.
Status AllocateLargeTemporary(tensorflow::OpKernelContext* ctx, tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                         tensorflow::Tensor* made);

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_LARGE_BUFFERS_H_
