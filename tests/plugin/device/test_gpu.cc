// A GPU for machines that have none: a TensorFlow device of type GPU and, in the same library, NVIDIA's driver
// (tests/compiler/emulated_driver.h, where its memory, its kernels and its faults are told of). TensorFlow's operators are its own for
// the processor, run with the device's memory open.

#include "../../compiler/emulated_driver.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/bfc_allocator.h"
#include "tensorflow/core/common_runtime/local_device.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::Device;
using tensorflow::DeviceContext;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// An empty tensor may be anywhere. Not tensor_data(), which ends the process for handles in newer versions of TensorFlow.
bool IsOfDevice(const Tensor& tensor) { return tensor.TotalBytes() == 0 || Memory::Get().Has(tensor.data()); }

// ---- the device ------------------------------------------------------------------------------------------------------------------

class WholeMemory : public tsl::SubAllocator {
 public:
  WholeMemory() : SubAllocator({}, {}) {}
  void* Alloc(size_t, size_t bytes, size_t* received) override {
    *received = bytes;
    return bytes > kMemory ? nullptr : Memory::Get().base();
  }
  void Free(void*, size_t) override {}
  bool SupportsCoalescing() const override { return false; }
  tsl::AllocatorMemoryType GetMemoryType() const override { return tsl::AllocatorMemoryType::kDevice; }
};

tensorflow::Allocator* DeviceAllocator() {
  static auto* allocator = [] {
    tsl::BFCAllocator::Options options;
    options.allow_growth = false;
    return new tsl::BFCAllocator(std::make_unique<WholeMemory>(), kMemory, "test_gpu", options);
  }();
  return allocator;
}

class Context : public DeviceContext {
 public:
  void CopyCPUTensorToDevice(const Tensor* from, Device*, Tensor* to, tensorflow::StatusCallback done, bool) const override {
    Move(*from, false, to, true, std::move(done));
  }
  void CopyDeviceTensorToCPU(const Tensor* from, absl::string_view, Device*, Tensor* to, tensorflow::StatusCallback done) override {
    Move(*from, true, to, false, std::move(done));
  }
  void CopyTensorInSameDevice(const Tensor* from, Device*, Tensor* to, tensorflow::StatusCallback done) const override {
    Move(*from, true, to, true, std::move(done));
  }

 private:
  static void Move(const Tensor& from, bool from_device, Tensor* to, bool to_device, tensorflow::StatusCallback done) {
    if (IsOfDevice(from) != (from_device || from.TotalBytes() == 0) || IsOfDevice(*to) != (to_device || to->TotalBytes() == 0)) {
      done(tensorflow::errors::Internal("a copy ", from_device ? "from" : "to", " the device takes one memory for the other: ", from.DebugString(0), " ", IsOfDevice(from), IsOfDevice(*to)));
      return;
    }
    {
      Window window;
      memcpy(const_cast<char*>(to->tensor_data().data()), from.tensor_data().data(), from.TotalBytes());
    }
    done(absl::OkStatus());
  }
};

class TestGpu : public tensorflow::LocalDevice {
 public:
  TestGpu(const tensorflow::SessionOptions& options, const tensorflow::DeviceAttributes& attributes, int number)
      : LocalDevice(options, attributes), number_(number), context_(new Context) {
    info_.default_context = context_;
    set_tensorflow_accelerator_device_info(&info_);
  }
  ~TestGpu() override { context_->Unref(); }

  tensorflow::Allocator* GetAllocator(AllocatorAttributes attributes) override {
    return attributes.on_host() ? tensorflow::cpu_allocator() : DeviceAllocator();
  }
  absl::Status TryGetDeviceContext(DeviceContext** context) override {
    context_->Ref();
    *context = context_;
    return absl::OkStatus();
  }
  absl::Status MakeTensorFromProto(const tensorflow::TensorProto& proto, const AllocatorAttributes attributes, Tensor* tensor) override {
    Tensor parsed(proto.dtype());
    if (!parsed.FromProto(tensorflow::cpu_allocator(), proto)) return tensorflow::errors::InvalidArgument("a constant that cannot be read");
    if (attributes.on_host()) {
      *tensor = parsed;
      return absl::OkStatus();
    }
    Tensor copy(DeviceAllocator(), parsed.dtype(), parsed.shape());
    Window window;
    memcpy(const_cast<char*>(copy.tensor_data().data()), parsed.tensor_data().data(), parsed.TotalBytes());
    *tensor = copy;
    return absl::OkStatus();
  }
  absl::Status Sync() override { return absl::OkStatus(); }
  void Compute(OpKernel* kernel, OpKernelContext* ctx) override {
    current_device = number_;
    kernel->Compute(ctx);
  }

 private:
  const int number_;
  Context* context_;
  tensorflow::DeviceBase::AcceleratorDeviceInfo info_;
};

class TestGpuFactory : public tensorflow::DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    for (int i = 0; i < DeviceCount(); ++i) devices->push_back("/physical_device:GPU:" + std::to_string(i));
    return absl::OkStatus();
  }
  absl::Status CreateDevices(const tensorflow::SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<Device>>* devices) override {
    for (int i = 0; i < DeviceCount(); ++i) {
      const std::string name = prefix + "/device:GPU:" + std::to_string(i);
      const auto attributes = Device::BuildDeviceAttributes(name, "GPU", tensorflow::Bytes(kMemory), {}, "a GPU of the tests");
      devices->push_back(std::make_unique<TestGpu>(options, attributes, i));
    }
    return absl::OkStatus();
  }
};

REGISTER_LOCAL_DEVICE_FACTORY("GPU", TestGpuFactory, 210);

// ---- operators: the processor's ----------------------------------------------------------------------------------------------------

class OnProcessor : public OpKernel {
 public:
  explicit OnProcessor(OpKernelConstruction* c) : OpKernel(c) {
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    OP_REQUIRES_OK(c, tensorflow::NodeProperties::CreateFromNodeDef(def(), tensorflow::OpRegistry::Global(), &properties));
    OpKernel* kernel = nullptr;
    OP_REQUIRES_OK(c, tensorflow::CreateOpKernel(tensorflow::DeviceType("CPU"), c->device(), tensorflow::cpu_allocator(),
                                                 c->function_library(), c->resource_manager(), properties, c->graph_def_version(), &kernel));
    kernel_.reset(kernel);
  }
  void Compute(OpKernelContext* ctx) override {
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const bool is_of_device = ctx->input_memory_type(i) == tensorflow::DEVICE_MEMORY;
      OP_REQUIRES(ctx, IsOfDevice(ctx->input(i)) == (is_of_device || ctx->input(i).TotalBytes() == 0),
                  tensorflow::errors::Internal(name(), ": input ", i, " is in the wrong memory"));
    }
    Window window;
    kernel_->Compute(ctx);
  }

 private:
  std::unique_ptr<OpKernel> kernel_;
};

#define ON_GPU(op, ...) REGISTER_KERNEL_BUILDER(Name(op).Device("GPU") __VA_ARGS__, OnProcessor)
#define HOST(name) .HostMemory(name)

ON_GPU("AddV2");
ON_GPU("AddN");
ON_GPU("Sub");
ON_GPU("Mul");
ON_GPU("RealDiv");
ON_GPU("Maximum");
ON_GPU("Minimum");
ON_GPU("SquaredDifference");
ON_GPU("Rsqrt");
ON_GPU("RsqrtGrad");
ON_GPU("Sqrt");
ON_GPU("Square");
ON_GPU("Neg");
ON_GPU("Exp");
ON_GPU("Erf");
ON_GPU("Tanh");
ON_GPU("TanhGrad");
ON_GPU("Sigmoid");
ON_GPU("Relu");
ON_GPU("ReluGrad");
ON_GPU("Greater");
ON_GPU("SelectV2");
ON_GPU("Cast");
ON_GPU("ZerosLike");
ON_GPU("BiasAdd");
ON_GPU("BiasAddGrad");
ON_GPU("Softmax");
ON_GPU("MatMul");
ON_GPU("SparseSoftmaxCrossEntropyWithLogits");
ON_GPU("OneHot", HOST("depth"));
ON_GPU("GatherV2", HOST("axis"));
ON_GPU("ResourceGather", HOST("resource"));
ON_GPU("UnsortedSegmentSum", HOST("num_segments"));
ON_GPU("Fill", HOST("dims"));
ON_GPU("Sum", HOST("reduction_indices"));
ON_GPU("Mean", HOST("reduction_indices"));
ON_GPU("Max", HOST("reduction_indices"));
ON_GPU("Transpose", HOST("perm"));
ON_GPU("Tile", HOST("multiples"));
ON_GPU("BroadcastTo", HOST("shape"));
ON_GPU("StatelessRandomNormalV2", HOST("shape") HOST("alg"));
ON_GPU("ResourceApplyGradientDescent", HOST("var"));
ON_GPU("ResourceApplyAdam", HOST("var") HOST("m") HOST("v"));

}  // namespace
