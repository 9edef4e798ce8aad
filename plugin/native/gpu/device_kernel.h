// A generated CUDA kernel: its image for one kind of device, and its launch (compiler/pipeline/cuda.py makes both).

#ifndef STITCHFLEET_PLUGIN_NATIVE_GPU_DEVICE_KERNEL_H_
#define STITCHFLEET_PLUGIN_NATIVE_GPU_DEVICE_KERNEL_H_

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "guard/compare.h"
#include "gpu/cuda_driver.h"

namespace stitchfleet {

// A tensor that a kernel takes: the input or output with a number, or the scratch memory.
struct DeviceTensor {
  enum class Kind : int {
#define TENSOR_KIND(enumerator, number) enumerator = number,
#include "op/interface.def"
  };
  Kind kind;
  int number;
};

// One thread's result of a comparison, over its elements. Must match StitchCompared in compiler/pipeline/cuda_compare.h.
struct ComparedPart {
  double largest;  // largest finite |expected|
  double worst_ratio, largest_error, expected, actual;
  long long worst_index;  // -1: none differs
};

// A kernel's image, its launch (grid, block: numbers of blocks and of threads per block; shared_bytes: per block), and the
// tensors that it takes, in order.
struct DeviceKernel {
  // The functions of one context's module.
  struct Loaded {
    CudaFunction kernel = nullptr, largest = nullptr, compare = nullptr;
  };

  std::string image, symbol;
  unsigned grid = 0, block = 0, shared_bytes = 0;
  bool cooperative = false;  // it has a grid barrier: it takes a semaphore, and all its blocks must be resident at once
  bool by_table = false;     // it takes the tensors' addresses from a table in memory, not as parameters
  std::vector<DeviceTensor> tensors;

  // The functions in the current context, loaded at its first call. kUnavailable if the driver refuses the image, or if not all
  // blocks of a cooperative launch can be resident at once.
  Status In(const CudaDriver& driver, const Loaded** loaded) const;

 private:
  Status Load(const CudaDriver& driver, Loaded* loaded) const;

  mutable std::mutex mutex_;
  mutable std::map<CudaContext, Loaded> loaded_;
};

// The launch of a comparison. Each thread has one result; the host combines them.
constexpr unsigned kCompareGrid = 64, kCompareBlock = 128;

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GPU_DEVICE_KERNEL_H_
