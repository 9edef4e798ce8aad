#include "gpu/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "tensorflow/core/platform/errors.h"

namespace stitchfleet {

const CudaDriver* CudaDriver::Get(std::string* reason) {
  struct Opened {
    CudaDriver driver;
    std::string reason;
    bool is_there = false;
  };
  static const Opened* opened = [] {
    auto* one = new Opened;
    const char* named = std::getenv("STITCHFLEET_CUDA_DRIVER");
    one->is_there = one->driver.Open(named != nullptr ? named : "libcuda.so.1", &one->reason);
    return one;
  }();
  if (!opened->is_there && reason != nullptr) *reason = opened->reason;
  return opened->is_there ? &opened->driver : nullptr;
}

bool CudaDriver::Open(const std::string& path, std::string* reason) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *reason = dlerror();
    return false;
  }
  const auto find = [library, reason](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    if (*function == nullptr) *reason = std::string("NVIDIA's driver has no ") + name;
    return *function != nullptr;
  };
  return find("cuCtxGetCurrent", &GetCurrentContext) && find("cuCtxGetDevice", &GetDevice) &&
         find("cuDeviceGetAttribute", &GetAttribute) && find("cuDeviceGetName", &GetName) && find("cuModuleLoadData", &LoadModule) &&
         find("cuModuleGetFunction", &GetFunction) && find("cuOccupancyMaxActiveBlocksPerMultiprocessor", &Occupancy) &&
         find("cuLaunchKernel", &Launch) && find("cuLaunchCooperativeKernel", &LaunchCooperative) &&
         find("cuMemcpyHtoDAsync_v2", &ToDevice) && find("cuMemcpyDtoHAsync_v2", &ToHost) && find("cuMemcpyDtoDAsync_v2", &InDevice) &&
         find("cuMemsetD32Async", &SetWords) && find("cuStreamSynchronize", &WaitFor) && find("cuGetErrorName", &error_name_);
}

Status CudaDriver::Check(CudaStatus status, const char* what) const {
  if (status == 0) return Ok();
  const char* name = nullptr;
  if (error_name_(status, &name) != 0 || name == nullptr) name = "an error without a name";
  return tensorflow::errors::Unavailable(what, ": ", name, " (", status, ")");
}

}  // namespace stitchfleet
