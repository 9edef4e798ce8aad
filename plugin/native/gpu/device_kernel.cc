#include "gpu/device_kernel.h"

#include "tensorflow/core/platform/errors.h"

namespace stitchfleet {

Status DeviceKernel::In(const CudaDriver& driver, const Loaded** loaded) const {
  CudaContext context = nullptr;
  TF_RETURN_IF_ERROR(driver.Check(driver.GetCurrentContext(&context), "no context"));
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = loaded_.find(context);
  if (found == loaded_.end()) {
    Loaded fresh;
    TF_RETURN_IF_ERROR(Load(driver, &fresh));
    found = loaded_.emplace(context, fresh).first;
  }
  *loaded = &found->second;
  return Ok();
}

Status DeviceKernel::Load(const CudaDriver& driver, Loaded* loaded) const {
  CudaModule module = nullptr;
  TF_RETURN_IF_ERROR(driver.Check(driver.LoadModule(&module, image.data()), "the kernel's image cannot be loaded"));
  const auto find = [&](const std::string& name, CudaFunction* function) {
    return driver.Check(driver.GetFunction(function, module, name.c_str()), name.c_str());
  };
  TF_RETURN_IF_ERROR(find(symbol, &loaded->kernel));
  TF_RETURN_IF_ERROR(find("stitch_largest", &loaded->largest));
  TF_RETURN_IF_ERROR(find("stitch_compare", &loaded->compare));
  if (!cooperative) return Ok();
  CudaDevice device = 0;
  int blocks = 0, multiprocessors = 0;
  TF_RETURN_IF_ERROR(driver.Check(driver.GetDevice(&device), "no device"));
  TF_RETURN_IF_ERROR(driver.Check(driver.GetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "no device"));
  TF_RETURN_IF_ERROR(driver.Check(driver.Occupancy(&blocks, loaded->kernel, static_cast<int>(block), shared_bytes), "occupancy"));
  if (static_cast<long long>(blocks) * multiprocessors >= grid) return Ok();
  return tensorflow::errors::Unavailable(grid, " blocks of the kernel wait for each other, the device holds ", blocks * multiprocessors);
}

}  // namespace stitchfleet
