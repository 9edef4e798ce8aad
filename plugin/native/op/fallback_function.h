// The function that a Stitch op falls back to. Its library is parsed once for all clusters with the same body, and never freed.
//
// A runtime identifies an instance by the function's name and the *address* of its library (Canonicalize in TensorFlow's
// core/common_runtime/function.cc), and keeps it after the op is gone. If a library were freed, another one at the same address would
// get the first one's instance: another cluster's numbers. So libraries live as long as the process, as the instances that refer to
// them do. Equal layers of a network, and a function that is traced again, share one.
//
// But no two ops that exist at once share an instance. Its operators' kernels would run for both at the same time, with tensors of other
// shapes, which happens to no kernel in the job's own graph: oneDNN's batch normalization keeps the number of channels in its kernel,
// and wrote beyond the moving averages of a layer with fewer.

#ifndef STITCHFLEET_PLUGIN_NATIVE_OP_FALLBACK_FUNCTION_H_
#define STITCHFLEET_PLUGIN_NATIVE_OP_FALLBACK_FUNCTION_H_

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/mutex.h"
#include "versions/status.h"

namespace stitchfleet {

class FallbackFunction {
 public:
  using Runtime = tensorflow::FunctionLibraryRuntime;

  // The first function of a serialized FunctionDefLibrary; INVALID_ARGUMENT if it cannot be parsed. Thread-safe.
  static Status Of(const std::string& body, const FallbackFunction** found) {
    static auto* mutex = new tensorflow::mutex;
    static auto* known = new std::map<std::string, std::unique_ptr<FallbackFunction>>;
    tensorflow::mutex_lock lock(*mutex);
    std::unique_ptr<FallbackFunction>& place = (*known)[body];
    if (place == nullptr) {
      tensorflow::FunctionDefLibrary library;
      if (!library.ParseFromString(body) || library.function_size() == 0) {
        known->erase(body);
        return tensorflow::errors::InvalidArgument("stitchfleet: a cluster carries no readable body");
      }
      place = std::make_unique<FallbackFunction>(library);
    }
    *found = place.get();
    return Ok();
  }

  explicit FallbackFunction(const tensorflow::FunctionDefLibrary& library)
      : name_(library.function(0).signature().name()),
        arguments_(library.function(0).signature().input_arg_size()),
        results_(library.function(0).signature().output_arg_size()),
        library_(tensorflow::OpRegistry::Global(), library) {}

  // A number that no other op with this function has now. The op gives it back when it goes. Thread-safe.
  int TakeNumber() const {
    tensorflow::mutex_lock lock(mutex_);
    if (given_back_.empty()) return next_++;
    const int number = *given_back_.begin();
    given_back_.erase(given_back_.begin());
    return number;
  }
  void GiveBack(int number) const {
    tensorflow::mutex_lock lock(mutex_);
    given_back_.insert(number);
  }

  // The instance of the op with a number in a runtime, on one of its devices: made by the first call, found by later ones. Each run asks
  // for it, since an op may outlive its runtime and get another one.
  Status Instantiate(Runtime* runtime, const std::string& device, int number, Runtime::Handle* handle) const {
    Runtime::InstantiateOptions options;
    options.state_handle = std::to_string(number);
    options.lib_def = &library_;  // self-contained: a plugin optimizer cannot add functions to the graph's own library
    options.target = device;
    // A multi-device function goes through the same passes as the job's own graph, so its operators get the same kernels: on a CPU
    // TensorFlow uses oneDNN's batch normalizations and pools, which round differently from Eigen's. (On a GPU there is no such pass,
    // and int32 arguments would have to be on the host.)
    if (absl::StrContains(device, "CPU:")) {
      options.is_multi_device_function = true;
      options.input_devices.assign(arguments_, device);
      options.output_devices.assign(results_, device);
    }
    return runtime->Instantiate(name_, tensorflow::AttrSlice(), options, handle);
  }

 private:
  const std::string name_;
  const int arguments_, results_;
  const tensorflow::FunctionLibraryDefinition library_;
  mutable tensorflow::mutex mutex_;
  mutable int next_ = 0;
  mutable std::set<int> given_back_;  // all below next_
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_OP_FALLBACK_FUNCTION_H_
