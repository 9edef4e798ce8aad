// A GPU for machines that have none: a TensorFlow device of type GPU and, in the same library, as much of NVIDIA's driver as stitch ops
// use (STITCHFLEET_CUDA_DRIVER names this library). Launches run in the emulator of tests/compiler.
//
//   memory      one region, which nothing but what the GPU runs may touch: elsewhere it is not even readable, so that code of the
//               processor that follows a pointer of the device's dies at once; and nothing but it is taken for the device's
//   operators   TensorFlow's own for the processor, run with that memory open
//   kernels     cuModuleLoadData gives the image to $TEST_GPU_BUILDER, which makes an emulated library of the source it was built from
//   devices     one, or with TEST_GPU_COUNT=2 a second one of another kind, as different as a slice of another GPU would be
//   faults      TEST_GPU_FAIL="cuLaunchKernel 3 700" lets the third and all later calls of a function fail with a code
//
// What the emulator finds wrong is printed, and fails the launch. TEST_GPU_LOG names a file that gets a line for each call.

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
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

constexpr size_t kMemory = size_t{1} << 30;

// The device's memory. Open while at least one Window is.
class Memory {
 public:
  static Memory& Get() {
    static auto* memory = new Memory;
    return *memory;
  }
  void* base() const { return base_; }
  bool Has(const void* pointer) const { return pointer >= base_ && pointer < static_cast<char*>(base_) + kMemory; }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (open_++ == 0) mprotect(base_, kMemory, PROT_READ | PROT_WRITE);
  }
  void Close() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--open_ == 0) mprotect(base_, kMemory, PROT_NONE);
  }

 private:
  Memory() : base_(mmap(nullptr, kMemory, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  std::mutex mutex_;
  void* base_;
  int open_ = 0;
};

// An empty tensor may be anywhere.
bool IsOfDevice(const Tensor& tensor) { return tensor.TotalBytes() == 0 || Memory::Get().Has(tensor.tensor_data().data()); }

struct Window {
  Window() { Memory::Get().Open(); }
  ~Window() { Memory::Get().Close(); }
};

// The device whose operator this thread runs: TensorFlow's GPU device makes its context current in the same way.
thread_local int current_device = 0;

int DeviceCount() {
  const char* count = std::getenv("TEST_GPU_COUNT");
  return count == nullptr ? 1 : atoi(count);
}

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
ON_GPU("OneHot", HOST("depth"));
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

// ---- the driver ----------------------------------------------------------------------------------------------------------------------

void Log(const std::string& line) {
  static const char* path = std::getenv("TEST_GPU_LOG");
  if (path == nullptr) return;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (FILE* file = fopen(path, "a")) {
    fprintf(file, "%s\n", line.c_str());
    fclose(file);
  }
}

// The code with which this call has to fail, or 0.
int Fault(const char* function) {
  static std::mutex mutex;
  static std::map<std::string, int> calls;
  std::lock_guard<std::mutex> lock(mutex);
  const int call = ++calls[function];
  Log(function);
  char named[64];
  int from = 0, code = 0;
  const char* fault = std::getenv("TEST_GPU_FAIL");
  if (fault == nullptr || sscanf(fault, "%63s %d %d", named, &from, &code) != 3) return 0;
  return strcmp(named, function) == 0 && call >= from ? code : 0;
}

// In step with emulator::Launch in tests/compiler/cuda_emulator.h.
struct EmulatedAllocation {
  void* pointer;
  long long bytes;
  int initialised;
};
struct EmulatedLaunch {
  unsigned grid, block;
  long long shared_bytes;
  unsigned resident_blocks;
  unsigned long long seed;
  int switch_per_mille;
  const EmulatedAllocation* allocations;
  int allocation_count;
  char* messages;
  long long message_bytes;
};

struct Module {
  void* library;
  int device;
};
struct Function {
  Module* module;
  std::string name;
  int (*run)(void** parameters, const EmulatedLaunch* launch);
  // Of a kernel of ours: what its tensors are; none for the comparison's.
  int tensors = 0, by_table = 0;
  const long long* bytes = nullptr;
  const int* initialised = nullptr;
};

// As the driver refuses it.
int FaultOfAddress(unsigned long long address) {
  return Memory::Get().Has(reinterpret_cast<const void*>(address)) ? 0 : 1;  // CUDA_ERROR_INVALID_VALUE
}

// The bytes of an image, an ELF file: up to the end of its section headers, behind which may be a few more.
size_t ImageBytes(const char* image) {
  uint64_t sections;
  uint16_t size, count;
  memcpy(&sections, image + 40, 8);
  memcpy(&size, image + 58, 2);
  memcpy(&count, image + 60, 2);
  return sections + static_cast<size_t>(size) * count;
}

// resident: blocks that are live at a time; 0: all.
int Run(const Function& function, unsigned grid, unsigned block, unsigned shared, void** parameters, unsigned resident) {
  if (function.module->device != current_device) return 201;  // CUDA_ERROR_INVALID_CONTEXT
  Log("launch:" + function.name);
  static std::mutex mutex;  // launches of one emulated library must not overlap
  std::lock_guard<std::mutex> lock(mutex);
  static unsigned long long seed = 0;
  Window window;
  std::vector<EmulatedAllocation> allocations;
  void** tensors = function.tensors == 0 ? nullptr
                   : function.by_table ? *static_cast<void***>(parameters[0])
                                       : static_cast<void**>(parameters[0]);
  for (int i = 0; i < function.tensors; ++i) {
    if (function.bytes[i] != 0 && !Memory::Get().Has(tensors[i])) return 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
    allocations.push_back({tensors[i], function.bytes[i], function.initialised[i]});
  }
  std::vector<char> messages(16384, 0);
  const EmulatedLaunch launch = {grid, block, shared, resident, ++seed, 5, allocations.data(), static_cast<int>(allocations.size()),
                                 messages.data(), static_cast<long long>(messages.size())};
  if (function.run(parameters, &launch) == 0) return 0;
  fprintf(stderr, "test gpu: %s: %s\n", function.name.c_str(), messages.data());
  return 719;  // CUDA_ERROR_LAUNCH_FAILED
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return Fault("cuInit"); }

int cuDeviceGetCount(int* count) {
  *count = DeviceCount();
  return 0;
}

int cuDeviceGet(int* device, int number) {
  *device = number;
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(current_device + 1));
  return 0;
}

int cuCtxGetDevice(int* device) {
  *device = current_device;
  return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
  snprintf(name, length, "Test GPU %d", device);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  static const std::map<int, int> of_second = {{16, 3}, {75, 8}};  // multiprocessors, capability
  if (device == 1 && of_second.count(attribute) != 0) {
    *value = of_second.at(attribute);
    return 0;
  }
  static const std::map<int, int> values = {{8, 49152}, {16, 2}, {36, 877000}, {37, 4096}, {38, 6 << 20}, {39, 2048}, {75, 7}, {76, 0},
                                            {81, 98304}, {82, 65536}, {95, 1}, {106, 32}};
  const auto found = values.find(attribute);
  if (found == values.end()) return 1;  // CUDA_ERROR_INVALID_VALUE
  *value = found->second;
  return 0;
}

int cuModuleLoadData(void** module, const void* image) {
  if (const int fault = Fault("cuModuleLoadData")) return fault;
  char file[] = "/tmp/test-gpu-XXXXXX";
  const int descriptor = mkstemp(file);
  const size_t bytes = ImageBytes(static_cast<const char*>(image));
  const bool is_written = write(descriptor, image, bytes) == static_cast<ssize_t>(bytes);
  close(descriptor);
  const char* builder = std::getenv("TEST_GPU_BUILDER");
  std::string library;
  if (is_written && builder != nullptr) {
    if (FILE* answer = popen((std::string(builder) + " " + file).c_str(), "r")) {
      char line[4096] = "";
      if (fgets(line, sizeof(line), answer) != nullptr) library = std::string(line, strcspn(line, "\n"));
      pclose(answer);
    }
  }
  unlink(file);
  void* loaded = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return 200;  // CUDA_ERROR_INVALID_IMAGE
  *module = new Module{loaded, current_device};
  return 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (const int fault = Fault("cuModuleGetFunction")) return fault;
  auto* of = static_cast<Module*>(module);
  auto found = std::make_unique<Function>();
  found->module = of;
  found->name = name;
  const std::string entry = std::string("run_") + name;
  found->run = reinterpret_cast<decltype(found->run)>(dlsym(of->library, entry.c_str()));
  if (found->run == nullptr) return 500;  // CUDA_ERROR_NOT_FOUND
  if (const auto* tensors = static_cast<const int*>(dlsym(of->library, (entry + "_tensors").c_str()))) {
    found->tensors = tensors[0];
    found->by_table = tensors[1];
    found->bytes = static_cast<const long long*>(dlsym(of->library, (entry + "_bytes").c_str()));
    found->initialised = static_cast<const int*>(dlsym(of->library, (entry + "_initialised").c_str()));
  }
  *function = found.release();
  return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int block, size_t) {
  *blocks = 2048 / block;
  return Fault("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned block, unsigned, unsigned, unsigned shared, void*,
                   void** parameters, void**) {
  if (const int fault = Fault("cuLaunchKernel")) return fault;
  return Run(*static_cast<Function*>(function), x * y * z, block, shared, parameters, 4);
}

int cuLaunchCooperativeKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned block, unsigned, unsigned, unsigned shared,
                              void*, void** parameters) {
  if (const int fault = Fault("cuLaunchCooperativeKernel")) return fault;
  return Run(*static_cast<Function*>(function), x * y * z, block, shared, parameters, 0);
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void*) {
  if (const int fault = Fault("cuMemcpyHtoDAsync_v2")) return fault;
  if (const int fault = FaultOfAddress(to)) return fault;
  Window window;
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}

int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void*) {
  if (const int fault = Fault("cuMemcpyDtoHAsync_v2")) return fault;
  if (const int fault = FaultOfAddress(from)) return fault;
  Window window;
  memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void*) {
  if (const int fault = Fault("cuMemcpyDtoDAsync_v2")) return fault;
  if (const int fault = FaultOfAddress(to)) return fault;
  if (const int fault = FaultOfAddress(from)) return fault;
  Window window;
  memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}

int cuMemsetD32Async(unsigned long long to, unsigned value, size_t count, void*) {
  if (const int fault = Fault("cuMemsetD32Async")) return fault;
  if (const int fault = FaultOfAddress(to)) return fault;
  Window window;
  for (size_t i = 0; i < count; ++i) reinterpret_cast<unsigned*>(to)[i] = value;
  return 0;
}

int cuStreamSynchronize(void*) { return Fault("cuStreamSynchronize"); }

int cuGetErrorName(int status, const char** name) {
  static const std::map<int, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"},   {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {500, "CUDA_ERROR_NOT_FOUND"},
                                                   {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                   {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                                                   {719, "CUDA_ERROR_LAUNCH_FAILED"}, {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"}};
  const auto found = names.find(status);
  if (found == names.end()) return 1;
  *name = found->second;
  return 0;
}

}  // extern "C"
