// A generated CUDA kernel: its image for one kind of device, and how it is launched (compiler/codegen/cuda/kernel_text.py makes both).

#ifndef STITCHFLEET_PLUGIN_NATIVE_GPU_DEVICE_KERNEL_H_
#define STITCHFLEET_PLUGIN_NATIVE_GPU_DEVICE_KERNEL_H_

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "guard/compare.h"
#include "gpu/cuda_driver.h"

namespace stitchfleet {

// What the kernel takes as one of its tensors: an input or an output by its number, or the scratch memory.
struct DeviceTensor {
  enum class Kind : int { kInput = 0, kOutput = 1, kScratch = 2 };
  Kind kind;
  int number;
};

// What one thread of the comparison has seen of its elements. In step with device_compare.cu.
struct ComparedPart {
  double largest;  // |expected|, over finite elements
  double worst_ratio, largest_error, expected, actual;
  long long worst_index;  // -1: none differs
};

struct DeviceKernel {
  // The functions of one context's module.
  struct Loaded {
    CudaFunction kernel = nullptr, largest = nullptr, compare = nullptr;
  };

  std::string image, symbol;
  unsigned grid = 0, block = 0, shared_bytes = 0;
  bool cooperative = false;  // it has a grid barrier: it takes a semaphore, and its blocks must be at once on the device
  bool by_table = false;     // the addresses are in memory rather than among the launch's parameters
  std::vector<DeviceTensor> tensors;

  // The functions in the current context, loaded by its first call. kUnavailable where the driver refuses the image, or would not hold
  // all blocks of a cooperative launch at once.
  absl::Status In(const CudaDriver& driver, const Loaded** loaded) const;

 private:
  absl::Status Load(const CudaDriver& driver, Loaded* loaded) const;

  mutable std::mutex mutex_;
  mutable std::map<CudaContext, Loaded> loaded_;
};

// Threads that compare two tensors: one result each, put together by the processor.
constexpr unsigned kCompareGrid = 64, kCompareBlock = 128;

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GPU_DEVICE_KERNEL_H_
