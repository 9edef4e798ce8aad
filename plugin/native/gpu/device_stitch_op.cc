// The Stitch op on a GPU: the driver (cuda_driver.h) launches kernels on TensorFlow's own stream; scratch comes from TensorFlow's
// allocator.
//
// A stitched call is one launch: it copies nothing (except the table of addresses of a kernel that takes one, if they have changed),
// and does not wait for the device. Value arguments and variables' handles are in the host's memory (`host_args`), all other
// arguments on the device. That includes int32, which TensorFlow keeps on the host at a function's border unless the function says
// otherwise: the fallback's function does (INTEGERS_ON_DEVICE in plugin/clusters/bodies.py).
//
// A verifying call waits for the device. The fallback's results and the kernel's are compared there
// (compiler/pipeline/cuda_compare.h); per output and pass, 384 KiB of partial results are copied to the host (two passes for floating
// point). The kernel's outputs lie between borders and are filled with a pattern before: elements that the kernel does not write are
// not right by chance, and writes beside the outputs are noticed. If the driver refuses a kernel, the signature is REVERTED and the
// fallback runs in the same call.

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "gpu/cuda_driver.h"
#include "gpu/device_kernel.h"
#include "op/stitch_op.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/mutex.h"

#include <dlfcn.h>

namespace stitchfleet {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Calls stream_executor::Stream::platform_specific_handle() const, which returns a pointer-sized struct. It is found at run time, so
// that this library loads wherever TensorFlow does.
CudaStream StreamOf(OpKernelContext* ctx) {
  using Handle = CudaStream (*)(const void*);
  static const auto handle =
      reinterpret_cast<Handle>(dlsym(RTLD_DEFAULT, "_ZNK15stream_executor6Stream24platform_specific_handleEv"));
  tensorflow::DeviceContext* device = ctx->op_device_context();
  const void* stream = device == nullptr ? nullptr : device->stream();
  return stream == nullptr || handle == nullptr ? nullptr : handle(stream);
}

const void* DataOf(const Tensor& tensor) { return tensor.tensor_data().data(); }

// Size in bytes of the border on each side of a verified output: a multiple of the alignment of outputs, and wider than small
// overruns.
constexpr int64_t kBorder = 256;
constexpr unsigned kRubbish = 0xA5A5A5A5;

// The element's type as the comparison's kernels take it: a number for floating-point types, else minus the size in bytes.
int ComparedKind(DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_FLOAT: return 0;
    case tensorflow::DT_DOUBLE: return 1;
    case tensorflow::DT_HALF: return 2;
    case tensorflow::DT_BFLOAT16: return 3;
    default: return -tensorflow::DataTypeSize(dtype);
  }
}

class DeviceStitchOp : public StitchOp {
 public:
  explicit DeviceStitchOp(OpKernelConstruction* c) : StitchOp(c) {}

 protected:
  const std::string& Device(OpKernelContext* ctx) const override {
    std::call_once(described_, [this] { device_ = Describe(); });
    return device_;
  }

  Status Launch(OpKernelContext* ctx, const Executable& executable, const Addresses& outputs, const Variables& variables) override {
    const DeviceKernel* kernel = executable.device_kernel.get();
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    if (kernel == nullptr || driver == nullptr) return tensorflow::errors::Unavailable("no kernel of this device's");
    const DeviceKernel::Loaded* loaded = nullptr;
    TF_RETURN_IF_ERROR(kernel->In(*driver, &loaded));
    const CudaStream stream = StreamOf(ctx);
    Tensor scratch;
    if (executable.scratch_bytes > 0) {
      TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_INT8, TensorShape({executable.scratch_bytes}), &scratch));
    }
    absl::InlinedVector<const void*, 32> addresses;
    for (const DeviceTensor& tensor : kernel->tensors) {
      switch (tensor.kind) {
        case DeviceTensor::Kind::kInput:
          addresses.push_back(DataOf(variables.Value(ctx, executable.kernel_inputs[tensor.number])));
          break;
        case DeviceTensor::Kind::kOutput:
          addresses.push_back(outputs[tensor.number]);
          break;
        case DeviceTensor::Kind::kScratch:
          addresses.push_back(DataOf(scratch));
      }
    }
    CudaAddress semaphore = 0, table = 0;
    Tensor addresses_on_device;
    if (kernel->cooperative) TF_RETURN_IF_ERROR(Semaphore(ctx, *driver, stream, &semaphore));
    if (kernel->by_table) {
      TF_RETURN_IF_ERROR(Table(ctx, *driver, stream, addresses, &addresses_on_device));
      table = ToAddress(DataOf(addresses_on_device));
    }
    void* parameters[] = {kernel->by_table ? static_cast<void*>(&table) : static_cast<void*>(addresses.data()), &semaphore};
    if (kernel->cooperative) {
      return driver->Check(driver->LaunchCooperative(loaded->kernel, kernel->grid, 1, 1, kernel->block, 1, 1, kernel->shared_bytes,
                                                     stream, parameters),
                           "the kernel cannot be launched");
    }
    return driver->Check(
        driver->Launch(loaded->kernel, kernel->grid, 1, 1, kernel->block, 1, 1, kernel->shared_bytes, stream, parameters, nullptr),
        "the kernel cannot be launched");
  }

  Status FallbackArguments(OpKernelContext* ctx, std::vector<Tensor>* arguments) override {
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const Tensor& given = ctx->input(i);
      arguments->push_back(given);
      // The function expects only handles on the host: integers must be on the device, as all other arguments.
      if (i >= host_arguments() || given.dtype() == tensorflow::DT_RESOURCE) continue;
      TF_RETURN_IF_ERROR(ToDevice(ctx, given, &arguments->back()));
    }
    return Ok();
  }

  Status AllocateOutput(OpKernelContext* ctx, int output, const TensorShape& shape, Tensor** made) const override {
    return ctx->allocate_output(output, shape, made);
  }

  Status AllocateVerified(OpKernelContext* ctx, const OutputSpec& spec, Tensor* output) const override {
    const int64_t bytes = spec.shape.num_elements() * tensorflow::DataTypeSize(spec.dtype);
    const int64_t words = (bytes + 2 * kBorder + 3) / 4;
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    if (driver == nullptr) return tensorflow::errors::Unavailable("no driver");
    Tensor whole;
    TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_INT8, TensorShape({words * 4}), &whole));
    TF_RETURN_IF_ERROR(driver->Check(driver->SetWords(ToAddress(DataOf(whole)), kRubbish, words, StreamOf(ctx)), "a kernel's outputs"));
    return output->BitcastFrom(whole.Slice(kBorder, kBorder + bytes), spec.dtype, spec.shape);
  }

  Status CheckBorders(OpKernelContext* ctx, const std::vector<Tensor>& outputs) const override {
    const CudaDriver& driver = *CudaDriver::Get(nullptr);
    const CudaStream stream = StreamOf(ctx);
    std::string borders(2 * kBorder * outputs.size(), 0);
    char* place = borders.data();
    for (const Tensor& output : outputs) {
      const CudaAddress begin = ToAddress(DataOf(output));
      for (const CudaAddress border : {begin - kBorder, begin + output.TotalBytes()}) {
        TF_RETURN_IF_ERROR(driver.Check(driver.ToHost(place, border, kBorder, stream), "the outputs' borders"));
        place += kBorder;
      }
    }
    TF_RETURN_IF_ERROR(driver.Check(driver.WaitFor(stream), "the outputs' borders"));
    if (borders.find_first_not_of('\xA5') == std::string::npos) return Ok();
    return tensorflow::errors::Unavailable("the kernel writes beside its outputs");
  }

  Status Finish(OpKernelContext* ctx) override {
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    return driver == nullptr ? Ok() : driver->Check(driver->WaitFor(StreamOf(ctx)), "the device has stopped");
  }

  Status CompareOutput(OpKernelContext* ctx, const Executable& executable, int output, const Tensor& expected,
                             const Tensor& actual, Comparison* comparison) override {
    const Tolerance& tolerance = executable.outputs[output].tolerance;
    if (expected.dtype() != actual.dtype() || expected.shape() != actual.shape()) {
      comparison->agree = false;
      comparison->worst_ratio = std::numeric_limits<double>::infinity();
      return Ok();
    }
    long long count = expected.NumElements();
    if (count == 0) return Ok();
    const CudaDriver& driver = *CudaDriver::Get(nullptr);
    const DeviceKernel::Loaded* loaded = nullptr;
    TF_RETURN_IF_ERROR(executable.device_kernel->In(driver, &loaded));
    Tensor room;
    std::vector<ComparedPart> parts(kCompareGrid * kCompareBlock);
    TF_RETURN_IF_ERROR(
        ctx->allocate_temp(tensorflow::DT_INT8, TensorShape({static_cast<int64_t>(parts.size() * sizeof(ComparedPart))}), &room));
    int kind = ComparedKind(expected.dtype());
    if (kind < -8) {  // pairs of words
      count *= -kind / 8;
      kind = -8;
    }
    CudaAddress e = ToAddress(DataOf(expected)), a = ToAddress(DataOf(actual)), found = ToAddress(DataOf(room));
    const auto run = [&](CudaFunction function, void** parameters) -> Status {
      const CudaStream stream = StreamOf(ctx);
      TF_RETURN_IF_ERROR(driver.Check(
          driver.Launch(function, kCompareGrid, 1, 1, kCompareBlock, 1, 1, 0, stream, parameters, nullptr), "the comparison"));
      TF_RETURN_IF_ERROR(driver.Check(driver.ToHost(parts.data(), found, parts.size() * sizeof(ComparedPart), stream), "the comparison"));
      return driver.Check(driver.WaitFor(stream), "the comparison");
    };
    double largest = 0.0, relative = tolerance.relative;
    if (kind >= 0) {
      void* parameters[] = {&e, &count, &kind, &found};
      TF_RETURN_IF_ERROR(run(loaded->largest, parameters));
      for (const ComparedPart& part : parts) largest = std::max(largest, part.largest);
    }
    double floor = tolerance.of_largest * largest + tolerance.absolute;
    void* parameters[] = {&e, &a, &count, &kind, &relative, &floor, &found};
    TF_RETURN_IF_ERROR(run(loaded->compare, parameters));
    for (const ComparedPart& part : parts) {
      comparison->largest_error = std::max(comparison->largest_error, part.largest_error);
      const bool is_worse = part.worst_ratio > comparison->worst_ratio;
      const bool is_earlier = part.worst_ratio == comparison->worst_ratio && part.worst_index < comparison->worst_index;
      if (part.worst_index < 0 || !(is_worse || is_earlier)) continue;
      comparison->worst_ratio = part.worst_ratio;
      comparison->worst_index = part.worst_index;
      comparison->expected = part.expected;
      comparison->actual = part.actual;
    }
    comparison->agree = comparison->worst_ratio <= 1.0;
    return Ok();
  }

  Status Copy(OpKernelContext* ctx, const Tensor& given, Tensor* copy) const override {
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    if (driver == nullptr) return tensorflow::errors::Unavailable("no driver");
    TF_RETURN_IF_ERROR(ctx->allocate_temp(given.dtype(), given.shape(), copy));
    if (given.TotalBytes() == 0) return Ok();
    return driver->Check(driver->InDevice(ToAddress(DataOf(*copy)), ToAddress(DataOf(given)), given.TotalBytes(), StreamOf(ctx)),
                         "a copy");
  }

  Status ToHost(OpKernelContext* ctx, const Tensor& given, Tensor* copy) const override {
    if (given.dtype() == tensorflow::DT_RESOURCE || IsOfHost(ctx, given)) return StitchOp::ToHost(ctx, given, copy);
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    if (driver == nullptr) return tensorflow::errors::Unavailable("no driver");
    Tensor host(given.dtype(), given.shape());
    if (given.TotalBytes() != 0) {
      const CudaStream stream = StreamOf(ctx);
      TF_RETURN_IF_ERROR(driver->Check(
          driver->ToHost(const_cast<void*>(DataOf(host)), ToAddress(DataOf(given)), given.TotalBytes(), stream), "a copy"));
      TF_RETURN_IF_ERROR(driver->Check(driver->WaitFor(stream), "a copy"));
    }
    *copy = host;
    return Ok();
  }

 private:
  // The device of the current context in JSON, as compiler/targets/targets.py reads it; "{}" if the driver cannot be asked.
  static std::string Describe() {
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    CudaDevice device = 0;
    char name[128] = "";
    if (driver == nullptr || driver->GetDevice(&device) != 0 || driver->GetName(name, sizeof(name), device) != 0) return "{}";
    std::string text = "{\"name\":\"";
    for (const char* c = name; *c != 0; ++c) {
      if (*c >= ' ' && *c != '"' && *c != '\\') text += *c;
    }
    text += "\"";
    for (const auto& [key, attribute] : kDeviceFigures) {
      int value = 0;
      if (driver->GetAttribute(&value, attribute, device) != 0) return "{}";
      text += std::string(",\"") + key + "\":" + std::to_string(value);
    }
    return text + "}";
  }

  static bool IsOfHost(OpKernelContext* ctx, const Tensor& tensor) {
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      if (ctx->input_memory_type(i) == tensorflow::HOST_MEMORY && ctx->input(i).SharesBufferWith(tensor)) return true;
    }
    return false;
  }

  Status ToDevice(OpKernelContext* ctx, const Tensor& given, Tensor* copy) const {
    const CudaDriver* driver = CudaDriver::Get(nullptr);
    if (driver == nullptr) return tensorflow::errors::Unavailable("no driver");
    Tensor device;
    TF_RETURN_IF_ERROR(ctx->allocate_temp(given.dtype(), given.shape(), &device));
    if (given.TotalBytes() != 0) {
      // The memory is not pinned, so the driver has read it before it returns.
      TF_RETURN_IF_ERROR(driver->Check(
          driver->ToDevice(ToAddress(DataOf(device)), DataOf(given), given.TotalBytes(), StreamOf(ctx)), "a copy"));
    }
    *copy = device;
    return Ok();
  }

  // The semaphore of the grid barrier. It serves one launch at a time; each op has its own, since an op's launches run in order on
  // its stream.
  Status Semaphore(OpKernelContext* ctx, const CudaDriver& driver, CudaStream stream, CudaAddress* address) {
    tensorflow::mutex_lock lock(mutex_);
    if (semaphore_.NumElements() == 0) {
      Tensor fresh;
      TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_INT8, TensorShape({64}), &fresh));
      TF_RETURN_IF_ERROR(driver.Check(driver.SetWords(ToAddress(DataOf(fresh)), 0, 16, stream), "the grid barrier's semaphore"));
      semaphore_ = fresh;
    }
    *address = ToAddress(DataOf(semaphore_));
    return Ok();
  }

  // The table of addresses in the device's memory. The previous call's is used again if the addresses are equal, as they mostly are
  // in training.
  Status Table(OpKernelContext* ctx, const CudaDriver& driver, CudaStream stream,
                     const absl::InlinedVector<const void*, 32>& addresses, Tensor* table) {
    tensorflow::mutex_lock lock(mutex_);
    const std::vector<const void*> wanted(addresses.begin(), addresses.end());
    if (wanted != last_addresses_) {
      const int64_t bytes = static_cast<int64_t>(wanted.size() * sizeof(void*));
      Tensor fresh;  // a kernel may still be reading the previous table
      TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_INT8, TensorShape({bytes}), &fresh));
      TF_RETURN_IF_ERROR(driver.Check(driver.ToDevice(ToAddress(DataOf(fresh)), wanted.data(), bytes, stream), "the table of tensors"));
      table_ = fresh;
      last_addresses_ = wanted;
    }
    *table = table_;
    return Ok();
  }

  mutable std::once_flag described_;
  mutable std::string device_;
  tensorflow::mutex mutex_;  // guards the members below
  Tensor semaphore_, table_;
  std::vector<const void*> last_addresses_;
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetStitch").Device(tensorflow::DEVICE_GPU).HostMemory("host_args"), DeviceStitchOp);
REGISTER_KERNEL_BUILDER(Name("StitchfleetUpdate").Device(tensorflow::DEVICE_GPU).HostMemory("host_args"), DeviceStitchOp);

}  // namespace
}  // namespace stitchfleet
