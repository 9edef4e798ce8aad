// The part of the API of NVIDIA's driver that Stitch ops use, opened at run time, so that this library loads without a GPU or a
// driver.
//
// The types and numbers are those of cuda.h (CUDA driver API, 12.x). STITCHFLEET_CUDA_DRIVER (plugin/base/settings.py) names a
// library to open instead of libcuda.so.1.

#ifndef STITCHFLEET_PLUGIN_NATIVE_GPU_CUDA_DRIVER_H_
#define STITCHFLEET_PLUGIN_NATIVE_GPU_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "versions/status.h"

namespace stitchfleet {

using CudaAddress = unsigned long long;  // CUdeviceptr
using CudaContext = struct CudaContextHandle*;
using CudaModule = struct CudaModuleHandle*;
using CudaFunction = struct CudaFunctionHandle*;
using CudaStream = struct CudaStreamHandle*;
using CudaDevice = int;
using CudaStatus = int;  // CUresult; 0 is success

// The values of CUdevice_attribute that are used; kDeviceFigures: the compiler's names for them (compiler/targets/targets.py).
#define CUDA_ATTRIBUTE(name, enumerator, number) enumerator = number,
enum CudaDeviceAttribute : int {
#include "cuda_attributes.def"
};
#undef CUDA_ATTRIBUTE
#define CUDA_ATTRIBUTE(name, enumerator, number) {#name, enumerator},
constexpr std::pair<const char*, CudaDeviceAttribute> kDeviceFigures[] = {
#include "cuda_attributes.def"
};
#undef CUDA_ATTRIBUTE

// The driver's functions that Stitch ops use, one member each; cuda_driver.cc has their names in the library.
class CudaDriver {
 public:
  // The driver, opened by the first call. Returns nullptr and sets `*reason` (unless it is nullptr) if there is none, or if it lacks
  // a function.
  static const CudaDriver* Get(std::string* reason);

  // OK if `status` is success, else kUnavailable with the driver's name of the error: "what: CUDA_ERROR_...".
  Status Check(CudaStatus status, const char* what) const;

  CudaStatus (*GetCurrentContext)(CudaContext*) = nullptr;
  CudaStatus (*GetDevice)(CudaDevice*) = nullptr;
  CudaStatus (*GetAttribute)(int*, CudaDeviceAttribute, CudaDevice) = nullptr;
  CudaStatus (*GetName)(char*, int, CudaDevice) = nullptr;
  CudaStatus (*LoadModule)(CudaModule*, const void*) = nullptr;
  CudaStatus (*GetFunction)(CudaFunction*, CudaModule, const char*) = nullptr;
  CudaStatus (*Occupancy)(int*, CudaFunction, int, size_t) = nullptr;
  CudaStatus (*Launch)(CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CudaStream, void**,
                       void**) = nullptr;
  CudaStatus (*LaunchCooperative)(CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CudaStream,
                                  void**) = nullptr;
  CudaStatus (*ToDevice)(CudaAddress, const void*, size_t, CudaStream) = nullptr;
  CudaStatus (*ToHost)(void*, CudaAddress, size_t, CudaStream) = nullptr;
  CudaStatus (*InDevice)(CudaAddress, CudaAddress, size_t, CudaStream) = nullptr;
  CudaStatus (*SetWords)(CudaAddress, unsigned, size_t, CudaStream) = nullptr;
  CudaStatus (*WaitFor)(CudaStream) = nullptr;

 private:
  bool Open(const std::string& path, std::string* reason);

  CudaStatus (*error_name_)(CudaStatus, const char**) = nullptr;
};

inline CudaAddress ToAddress(const void* pointer) { return static_cast<CudaAddress>(reinterpret_cast<uintptr_t>(pointer)); }

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_GPU_CUDA_DRIVER_H_
