// NVIDIA's driver for machines that have no GPU, as much of it as stitch ops (STITCHFLEET_CUDA_DRIVER names the library) and the
// stand-alone runtime by pycuda use. Launches run in the emulator (cuda_emulator.h).
//
//   memory      one region, which nothing but what the GPU runs may touch: elsewhere it is not even readable, so that code of the
//               processor that follows a pointer of the device's dies at once; and nothing but it is taken for the device's
//   kernels     cuModuleLoadData gives the image to $TEST_GPU_BUILDER (emulated_driver_builder.py), which makes an emulated library of
//               the source it was built from
//   devices     one, or with TEST_GPU_COUNT=2 a second one of another kind, as different as a slice of another GPU would be
//   faults      TEST_GPU_FAIL="cuLaunchKernel 3 700" lets the third and all later calls of a function fail with a code
//
// What the emulator finds wrong is printed, and fails the launch. TEST_GPU_LOG names a file that gets a line for each call.

#ifndef STITCHFLEET_TESTS_COMPILER_EMULATED_DRIVER_H_
#define STITCHFLEET_TESTS_COMPILER_EMULATED_DRIVER_H_

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
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

namespace {

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

// Memory that cuMemAlloc has given out, by address. TensorFlow's allocator takes the whole region at once instead.
struct Heap {
  std::mutex mutex;
  std::map<char*, size_t> taken;

  char* Take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    bytes = (bytes + 255) / 256 * 256;
    char* free = static_cast<char*>(Memory::Get().base());
    for (const auto& [begin, size] : taken) {
      if (begin - free >= static_cast<ptrdiff_t>(bytes)) break;
      free = begin + size;
    }
    if (!Memory::Get().Has(free + bytes - 1)) return nullptr;
    taken[free] = bytes;
    Window window;
    memset(free, 0xA5, bytes);
    return free;
  }
  bool Give(char* begin) {
    std::lock_guard<std::mutex> lock(mutex);
    return taken.erase(begin) != 0;
  }
};
Heap heap;

using Clock = std::chrono::steady_clock;

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
  static const std::map<int, int> values = {{1, 1024}, {8, 49152}, {10, 32}, {12, 65536}, {16, 2}, {36, 877000}, {37, 4096}, {38, 6 << 20}, {39, 2048}, {75, 7}, {76, 0},
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

// The library stays loaded: a function of it may be running.
int cuModuleUnload(void*) { return Fault("cuModuleUnload"); }

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
  Log(value == 0 ? "zeros" : "rubbish");
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

int cuGetErrorString(int status, const char** text) { return cuGetErrorName(status, text); }

// NVRTC asks, where the driver is in the process, and takes no for an answer.
int cuGetExportTable(const void**, const void*) { return 801; }  // CUDA_ERROR_NOT_SUPPORTED

// ---- what pycuda calls besides: contexts, memory, streams and events --------------------------------------------------------------

int cuDriverGetVersion(int* version) {
  *version = 12090;
  return 0;
}

int cuDeviceComputeCapability(int* major, int* minor, int device) {
  const int status = cuDeviceGetAttribute(major, 75, device);
  return status != 0 ? status : cuDeviceGetAttribute(minor, 76, device);
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kMemory;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int fault = Fault("cuDevicePrimaryCtxRetain")) return fault;
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(device + 1));
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int) { return 0; }

int cuCtxPushCurrent_v2(void* context) {
  current_device = static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1;
  return 0;
}

int cuCtxDetach(void*) { return 0; }

int cuCtxPopCurrent_v2(void** context) { return cuCtxGetCurrent(context); }

int cuCtxSynchronize() { return Fault("cuCtxSynchronize"); }

int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  if (const int fault = Fault("cuMemAlloc_v2")) return fault;
  char* taken = bytes == 0 ? nullptr : heap.Take(bytes);
  *address = reinterpret_cast<unsigned long long>(taken);
  return taken != nullptr ? 0 : bytes == 0 ? 1 : 2;  // CUDA_ERROR_OUT_OF_MEMORY
}

int cuMemFree_v2(unsigned long long address) { return heap.Give(reinterpret_cast<char*>(address)) ? 0 : 1; }

int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); }

int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); }

int cuMemsetD32_v2(unsigned long long to, unsigned value, size_t count) { return cuMemsetD32Async(to, value, count, nullptr); }

int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t count) {
  if (const int fault = FaultOfAddress(to)) return fault;
  Window window;
  memset(reinterpret_cast<void*>(to), value, count);
  return 0;
}

int cuStreamCreate(void** stream, unsigned) {
  *stream = new char;
  return 0;
}

int cuStreamDestroy_v2(void* stream) {
  delete static_cast<char*>(stream);
  return 0;
}

int cuEventCreate(void** event, unsigned) {
  *event = new Clock::time_point;
  return 0;
}

int cuEventDestroy_v2(void* event) {
  delete static_cast<Clock::time_point*>(event);
  return 0;
}

int cuEventRecord(void* event, void*) {
  *static_cast<Clock::time_point*>(event) = Clock::now();
  return 0;
}

int cuEventSynchronize(void*) { return Fault("cuEventSynchronize"); }

// A launch is over when it returns: the emulator's time, which says nothing of a GPU's.
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const auto passed = *static_cast<Clock::time_point*>(end) - *static_cast<Clock::time_point*>(begin);
  *milliseconds = std::chrono::duration<float, std::milli>(passed).count();
  return 0;
}

}  // extern "C"

#endif  // STITCHFLEET_TESTS_COMPILER_EMULATED_DRIVER_H_
