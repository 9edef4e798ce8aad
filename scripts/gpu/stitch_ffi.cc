// The custom call "stitchfleet_kernel" of XLA: a stitch op's CUDA kernel, launched in XLA's stream.
//
//   image         path of the cubin; relative to the folder that stitch_folder was given
//   symbol        the kernel's name in it
//   site          a number that tells this call from all others: each has a semaphore, and tables of addresses, of its own
//   grid, block, shared_bytes, cooperative     as the kernel's metadata says
//   by_table      the kernel's first argument is the address of a table of its tensors' addresses, not the addresses themselves
//   tensors       for each tensor of the kernel: n >= 0: operand n; 1000000 + n: result n; -1: the scratch memory
//   scratch_bytes if it is not 0, the last result is the scratch memory
//
// Everything that a stream capture forbids (loading an image, allocating) is done before the first execution, when XLA instantiates
// the call. Tables are the exception: their addresses are known only in an execution. A table is made, in a stream of its own, when
// an execution first sees its addresses, and stays as it is for ever, so that a captured launch can be replayed.
//
// -DSTITCH_REHEARSAL makes the same call for XLA's CPU client: tensors are copied to the memory of the driver's and back.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int64_t kResult = 1000000;
constexpr int64_t kScratch = -1;
constexpr size_t kSemaphoreBytes = 64;
constexpr size_t kMostTables = 65536;
constexpr int kDynamicSharedSize = 8;     // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kSharedWithoutAsking = 48 * 1024;
constexpr unsigned kNonBlocking = 1;      // CU_STREAM_NON_BLOCKING
constexpr int kRelaxed = 2;               // CU_STREAM_CAPTURE_MODE_RELAXED

using Address = unsigned long long;

// The driver's functions. missing: the first one that the library does not have, or the library.
struct Driver {
  std::string missing;
  int (*init)(unsigned);
  int (*name_of)(int, const char**);
  int (*device)(int*, int);
  int (*retain)(void**, int);
  int (*current)(void**);
  int (*push)(void*);
  int (*pop)(void**);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*allocate)(Address*, size_t);
  int (*fill)(Address, unsigned char, size_t);
  int (*copy)(Address, const void*, size_t, void*);
  int (*stream)(void**, unsigned);
  int (*wait)(void*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*launch_cooperative)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**);
  int (*set)(void*, int, int);
  int (*load_function)(void*);
  int (*exchange_capture_mode)(int*);
  int (*release)(Address);
  int (*copy_back)(void*, Address, size_t);

  static const Driver& Get() {
    static const auto* driver = new Driver;
    return *driver;
  }

 private:
  Driver() {
    const char* named = std::getenv("STITCH_CUDA_DRIVER");
    const char* path = named == nullptr ? "libcuda.so.1" : named;
    void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      missing = std::string("library ") + path;
      return;
    }
    const auto find = [&](auto& function, const char* name, bool is_needed = true) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && is_needed && missing.empty()) missing = name;
    };
    find(init, "cuInit");
    find(name_of, "cuGetErrorName");
    find(device, "cuDeviceGet");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(current, "cuCtxGetCurrent");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(load, "cuModuleLoadData");
    find(function, "cuModuleGetFunction");
    find(allocate, "cuMemAlloc_v2");
    find(fill, "cuMemsetD8_v2");
    find(copy, "cuMemcpyHtoDAsync_v2");
    find(stream, "cuStreamCreate");
    find(wait, "cuStreamSynchronize");
    find(launch, "cuLaunchKernel");
    find(launch_cooperative, "cuLaunchCooperativeKernel");
    find(set, "cuFuncSetAttribute", false);
    find(load_function, "cuFuncLoad", false);
    find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", false);
    find(release, "cuMemFree_v2", false);
    find(copy_back, "cuMemcpyDtoH_v2", false);
    if (missing.empty()) init(0);
  }
};

// The text of a driver's error in one line; empty if there is none.
std::string Failed(const char* function, int status, const std::string& of = "") {
  if (status == 0) return "";
  const char* name = nullptr;
  if (Driver::Get().name_of(status, &name) != 0 || name == nullptr) name = "an unknown error";
  return std::string("stitchfleet_kernel: ") + function + ": " + name + (of.empty() ? "" : " (" + of + ")");
}

// Makes device 0's primary context, which is XLA's too, current if this thread has none, and allows what a capture forbids.
class Scope {
 public:
  Scope() {
    const Driver& driver = Driver::Get();
    void* context = nullptr;
    error_ = Failed("cuCtxGetCurrent", driver.current(&context));
    if (error_.empty() && context == nullptr) {
      int device = 0;
      if ((error_ = Failed("cuDeviceGet", driver.device(&device, 0))).empty() &&
          (error_ = Failed("cuDevicePrimaryCtxRetain", driver.retain(&context, device))).empty()) {
        error_ = Failed("cuCtxPushCurrent", driver.push(context));
        is_pushed_ = error_.empty();
      }
    }
    if (driver.exchange_capture_mode != nullptr) driver.exchange_capture_mode(&mode_);
  }
  ~Scope() {
    const Driver& driver = Driver::Get();
    if (driver.exchange_capture_mode != nullptr) driver.exchange_capture_mode(&mode_);
    void* context = nullptr;
    if (is_pushed_) driver.pop(&context);
  }
  const std::string& error() const { return error_; }

 private:
  std::string error_;
  bool is_pushed_ = false;
  int mode_ = kRelaxed;
};

// One custom call: its kernel with what only it may use.
struct Site {
  std::string symbol;
  void* function = nullptr;
  Address semaphore = 0;
  unsigned grid = 1, block = 1, shared_bytes = 0;
  bool cooperative = false, by_table = false;
  int64_t scratch_bytes = 0;
  std::vector<int64_t> tensors;
  std::mutex mutex;
  void* upload = nullptr;
  std::map<std::vector<Address>, Address> tables;

  // The address of the table with these addresses.
  std::string Table(const std::vector<Address>& addresses, Address* table) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = tables.find(addresses);
    if (found != tables.end()) {
      *table = found->second;
      return "";
    }
    if (tables.size() >= kMostTables) return "stitchfleet_kernel: too many sets of tensors (" + symbol + ")";
    const Driver& driver = Driver::Get();
    const Scope scope;
    if (!scope.error().empty()) return scope.error();
    const size_t bytes = addresses.size() * sizeof(Address);
    std::string error;
    if (upload == nullptr && !(error = Failed("cuStreamCreate", driver.stream(&upload, kNonBlocking))).empty()) return error;
    if (!(error = Failed("cuMemAlloc", driver.allocate(table, bytes), symbol)).empty()) return error;
    if (!(error = Failed("cuMemcpyHtoDAsync", driver.copy(*table, addresses.data(), bytes, upload), symbol)).empty()) return error;
    if (!(error = Failed("cuStreamSynchronize", driver.wait(upload), symbol)).empty()) return error;
    tables[addresses] = *table;
    return "";
  }

  std::string Launch(std::vector<Address>& addresses, void* stream) {
    Address table = 0;
    if (by_table) {
      const std::string error = Table(addresses, &table);
      if (!error.empty()) return error;
    }
    void* parameters[] = {by_table ? static_cast<void*>(&table) : static_cast<void*>(addresses.data()), &semaphore};
    const Driver& driver = Driver::Get();
    if (cooperative) {
      return Failed("cuLaunchCooperativeKernel",
                    driver.launch_cooperative(function, grid, 1, 1, block, 1, 1, shared_bytes, stream, parameters), symbol);
    }
    return Failed("cuLaunchKernel", driver.launch(function, grid, 1, 1, block, 1, 1, shared_bytes, stream, parameters, nullptr),
                  symbol);
  }
};

std::mutex all_mutex;
std::string folder;
std::atomic<long long> launches{0};

// Loaded images by path. They stay loaded.
std::string LoadImage(const std::string& image, void** module) {
  static auto* modules = new std::map<std::string, void*>;
  const auto found = modules->find(image);
  if (found != modules->end()) {
    *module = found->second;
    return "";
  }
  const std::string path = image[0] == '/' || folder.empty() ? image : folder + "/" + image;
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.empty()) return "stitchfleet_kernel: " + path + " cannot be read";
  const std::string error = Failed("cuModuleLoadData", Driver::Get().load(module, bytes.c_str()), path);
  if (error.empty()) (*modules)[image] = *module;
  return error;
}

template <typename T>
bool Read(const ffi::Dictionary& attributes, const char* name, T* value, std::string* error) {
  auto found = attributes.get<T>(name);
  if (found.has_value()) {
    *value = *found;
    return true;
  }
  *error = std::string("stitchfleet_kernel: attribute ") + name + ": " + found.error().message();
  return false;
}

// Finds the call's site, or makes it.
std::string Find(const ffi::Dictionary& attributes, Site** site) {
  static auto* sites = new std::unordered_map<int64_t, std::unique_ptr<Site>>;
  std::string error;
  int64_t number = 0;
  if (!Read(attributes, "site", &number, &error)) return error;
  std::lock_guard<std::mutex> lock(all_mutex);
  const auto found = sites->find(number);
  if (found != sites->end()) {
    *site = found->second.get();
    return "";
  }
  const Driver& driver = Driver::Get();
  if (!driver.missing.empty()) return "stitchfleet_kernel: there is no " + driver.missing + " of the driver's";
  auto made = std::make_unique<Site>();
  std::string_view image, symbol;
  int64_t grid = 0, block = 0, shared_bytes = 0;
  ffi::Span<const int64_t> tensors;
  if (!Read(attributes, "image", &image, &error) || !Read(attributes, "symbol", &symbol, &error) ||
      !Read(attributes, "grid", &grid, &error) || !Read(attributes, "block", &block, &error) ||
      !Read(attributes, "shared_bytes", &shared_bytes, &error) || !Read(attributes, "cooperative", &made->cooperative, &error) ||
      !Read(attributes, "by_table", &made->by_table, &error) || !Read(attributes, "scratch_bytes", &made->scratch_bytes, &error) ||
      !Read(attributes, "tensors", &tensors, &error)) {
    return error;
  }
  made->symbol = std::string(symbol);
  made->grid = static_cast<unsigned>(grid);
  made->block = static_cast<unsigned>(block);
  made->shared_bytes = static_cast<unsigned>(shared_bytes);
  made->tensors.assign(tensors.begin(), tensors.end());
  const Scope scope;
  if (!scope.error().empty()) return scope.error();
  void* module = nullptr;
  if (!(error = LoadImage(std::string(image), &module)).empty()) return error;
  if (!(error = Failed("cuModuleGetFunction", driver.function(&made->function, module, made->symbol.c_str()), made->symbol)).empty())
    return error;
#ifndef STITCH_REHEARSAL
  if (driver.load_function != nullptr && !(error = Failed("cuFuncLoad", driver.load_function(made->function), made->symbol)).empty())
    return error;
  if (shared_bytes > kSharedWithoutAsking) {
    if (driver.set == nullptr) return "stitchfleet_kernel: the driver has no cuFuncSetAttribute";
    const int status = driver.set(made->function, kDynamicSharedSize, static_cast<int>(shared_bytes));
    if (!(error = Failed("cuFuncSetAttribute", status, made->symbol)).empty()) return error;
  }
#endif
  if (!(error = Failed("cuMemAlloc", driver.allocate(&made->semaphore, kSemaphoreBytes), made->symbol)).empty()) return error;
  if (!(error = Failed("cuMemsetD8", driver.fill(made->semaphore, 0, kSemaphoreBytes), made->symbol)).empty()) return error;
  // The memory is zero before any stream, also one that does not wait for the default stream, goes on.
  if (!(error = Failed("cuStreamSynchronize", driver.wait(nullptr), made->symbol)).empty()) return error;
  *site = made.get();
  (*sites)[number] = std::move(made);
  return "";
}

ffi::Error Result(const std::string& error) {
  return error.empty() ? ffi::Error::Success() : ffi::Error(ffi::ErrorCode::kInternal, error);
}

ffi::Error Instantiate(ffi::Dictionary attributes) {
  Site* site = nullptr;
  return Result(Find(attributes, &site));
}

struct Tensor {
  void* data;
  size_t bytes;
};

// The operands, then the results. Empty, with the error, if one is no buffer.
std::vector<Tensor> Tensors(const ffi::RemainingArgs& arguments, const ffi::RemainingRets& results, std::string* error) {
  std::vector<Tensor> found;
  found.reserve(arguments.size() + results.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto one = arguments.get<ffi::AnyBuffer>(i);
    if (!one.has_value()) {
      *error = "stitchfleet_kernel: operand " + std::to_string(i) + ": " + one.error().message();
      return {};
    }
    found.push_back({one->untyped_data(), one->size_bytes()});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto one = results.get<ffi::AnyBuffer>(i);
    if (!one.has_value()) {
      *error = "stitchfleet_kernel: result " + std::to_string(i) + ": " + one.error().message();
      return {};
    }
    found.push_back({(*one)->untyped_data(), (*one)->size_bytes()});
  }
  return found;
}

// What the kernel's tensors are, as places in the list of operands and results.
std::string Places(const Site& site, size_t operands, size_t results, std::vector<size_t>* places) {
  for (const int64_t tensor : site.tensors) {
    const bool is_operand = tensor >= 0 && tensor < kResult;
    const size_t number = tensor == kScratch ? results - 1 : static_cast<size_t>(is_operand ? tensor : tensor - kResult);
    if (results == 0 || number >= (is_operand ? operands : results)) {
      return "stitchfleet_kernel: given " + std::to_string(operands) + " operands and " + std::to_string(results) +
             " results, expected those of tensor " + std::to_string(tensor) + " (" + site.symbol + ")";
    }
    places->push_back(is_operand ? number : operands + number);
  }
  return "";
}

#ifndef STITCH_REHEARSAL

ffi::Error Execute(void* stream, ffi::RemainingArgs arguments, ffi::RemainingRets results, ffi::Dictionary attributes) {
  Site* site = nullptr;
  std::string error = Find(attributes, &site);
  if (!error.empty()) return Result(error);
  const std::vector<Tensor> tensors = Tensors(arguments, results, &error);
  if (!error.empty()) return Result(error);
  std::vector<size_t> places;
  places.reserve(site->tensors.size());
  if (!(error = Places(*site, arguments.size(), results.size(), &places)).empty()) return Result(error);
  std::vector<Address> addresses;
  addresses.reserve(places.size());
  for (const size_t place : places) addresses.push_back(reinterpret_cast<Address>(tensors[place].data));
  ++launches;
  return Result(site->Launch(addresses, stream));
}

#else

ffi::Error Execute(ffi::RemainingArgs arguments, ffi::RemainingRets results, ffi::Dictionary attributes) {
  Site* site = nullptr;
  std::string error = Find(attributes, &site);
  if (!error.empty()) return Result(error);
  const std::vector<Tensor> tensors = Tensors(arguments, results, &error);
  std::vector<size_t> places;
  if (!error.empty() || !(error = Places(*site, arguments.size(), results.size(), &places)).empty()) return Result(error);
  const Driver& driver = Driver::Get();
  std::vector<Address> copies;
  std::map<const void*, Address> of;  // a result may share an operand's memory
  for (const Tensor& tensor : tensors) {
    Address copy = 0;
    const auto known = of.find(tensor.data);
    if (tensor.bytes != 0 && known != of.end()) {
      copies.push_back(known->second);
      continue;
    }
    if (!(error = Failed("cuMemAlloc", driver.allocate(&copy, tensor.bytes + 1), site->symbol)).empty()) return Result(error);
    of[tensor.data] = copy;
    copies.push_back(copy);
  }
  for (size_t i = 0; i < arguments.size(); ++i) driver.copy(copies[i], tensors[i].data, tensors[i].bytes, nullptr);
  std::vector<Address> addresses;
  for (const size_t place : places) addresses.push_back(copies[place]);
  ++launches;
  error = site->Launch(addresses, nullptr);
  for (size_t i = arguments.size(); error.empty() && i < tensors.size(); ++i) {
    error = Failed("cuMemcpyDtoH", driver.copy_back(tensors[i].data, copies[i], tensors[i].bytes), site->symbol);
  }
  for (const Address copy : std::set<Address>(copies.begin(), copies.end())) driver.release(copy);
  return Result(error);
}

#endif

}  // namespace

extern "C" {

// The folder to which the images' paths are relative.
void stitch_folder(const char* path) {
  std::lock_guard<std::mutex> lock(all_mutex);
  folder = path;
}

// How many launches were put into a stream, or captured.
long long stitch_launches() { return launches; }
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(StitchInstantiate, Instantiate, ffi::Ffi::BindInstantiate().Attrs());

#ifndef STITCH_REHEARSAL
XLA_FFI_DEFINE_HANDLER_SYMBOL(StitchKernel, Execute,
                              ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().RemainingArgs().RemainingRets().Attrs(),
                              {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(StitchKernelUncaptured, Execute,
                              ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().RemainingArgs().RemainingRets().Attrs());
#else
XLA_FFI_DEFINE_HANDLER_SYMBOL(StitchKernel, Execute, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(StitchKernelUncaptured, Execute, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
#endif
