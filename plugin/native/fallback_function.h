// The function that a Stitch op falls back to: parsed and instantiated once for all ops of one cluster in one function runtime.
//
// A network's equal layers have equal clusters; an instantiation builds an executor, some milliseconds each.

#ifndef STITCHFLEET_PLUGIN_NATIVE_FALLBACK_FUNCTION_H_
#define STITCHFLEET_PLUGIN_NATIVE_FALLBACK_FUNCTION_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/mutex.h"

namespace stitchfleet {

class FallbackFunction {
 public:
  using Runtime = tensorflow::FunctionLibraryRuntime;

  // The one for a cluster in a runtime, or a new one. Ops hold it, and ops end before their runtime: what is found here is alive.
  static absl::Status Shared(Runtime* runtime, const std::string& cluster, const std::string& body,
                             std::shared_ptr<FallbackFunction>* found) {
    static auto* mutex = new tensorflow::mutex;
    static auto* known = new std::map<std::pair<Runtime*, std::string>, std::weak_ptr<FallbackFunction>>;
    tensorflow::mutex_lock lock(*mutex);
    const auto place = known->find({runtime, cluster});
    if (place != known->end() && (*found = place->second.lock()) != nullptr && (*found)->body_ == body) return absl::OkStatus();
    tensorflow::FunctionDefLibrary library;
    if (!library.ParseFromString(body) || library.function_size() == 0) {
      return tensorflow::errors::InvalidArgument("stitchfleet: the cluster ", cluster, " carries no readable body");
    }
    *found = std::make_shared<FallbackFunction>(body, library);
    for (auto entry = known->begin(); entry != known->end();) {  // those whose runtime has ended
      entry = entry->second.expired() ? known->erase(entry) : std::next(entry);
    }
    (*known)[{runtime, cluster}] = *found;
    return absl::OkStatus();
  }

  FallbackFunction(const std::string& body, const tensorflow::FunctionDefLibrary& library)
      : body_(body),
        name_(library.function(0).signature().name()),
        library_(tensorflow::OpRegistry::Global(), library) {}

  absl::Status Instantiate(Runtime* runtime, const std::string& device, Runtime::Handle* handle) {
    tensorflow::mutex_lock lock(mutex_);
    for (const auto& [where, instance] : handles_) {
      if (where == runtime) {
        *handle = instance;
        return absl::OkStatus();
      }
    }
    Runtime::InstantiateOptions options;
    options.lib_def = &library_;  // self-contained: a plugin optimizer cannot add functions to the graph's own library
    options.target = device;
    TF_RETURN_IF_ERROR(runtime->Instantiate(name_, tensorflow::AttrSlice(), options, handle));
    handles_.emplace_back(runtime, *handle);
    return absl::OkStatus();
  }

 private:
  const std::string body_, name_;
  tensorflow::FunctionLibraryDefinition library_;
  tensorflow::mutex mutex_;
  std::vector<std::pair<Runtime*, Runtime::Handle>> handles_;
};

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_FALLBACK_FUNCTION_H_
