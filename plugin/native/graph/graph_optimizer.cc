// A graph-optimizer plugin (TensorFlow's C API) that passes each placed graph to a callback in Python.
//
// TensorFlow treats TF_ABORTED as "nothing to do" and keeps the graph: that is also the result of every failure of ours. The user's
// optimizer settings are not changed: every tri-state of the plugin's configuration has its default.

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/c/tf_buffer.h"
#include "tensorflow/c/tf_status.h"

// The callback. graph: a serialized GraphDef; preserve: names of nodes that must stay, one per line. Returns 0 and a malloc'ed
// GraphDef in *out, or any other number to leave the graph as it is.
typedef int (*StitchfleetRewrite)(const void* graph, size_t bytes, const char* preserve, void** out, size_t* out_bytes);

namespace {

std::atomic<StitchfleetRewrite> g_rewrite{nullptr};
char g_state;

// Finds a function of the grappler C API at run time: they are in libtensorflow_cc, which the pip wheel's link flags do not include.
template <typename F>
F Find(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    static void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) found = dlsym(library, name);
  }
  return reinterpret_cast<F>(found);
}

// Returns false if the names cannot be read; the graph must not be rewritten then.
bool NodesToPreserve(const TF_GrapplerItem* item, std::string* names) {
  auto size_of = Find<decltype(&TF_GetNodesToPreserveListSize)>("TF_GetNodesToPreserveListSize");
  auto list = Find<decltype(&TF_GetNodesToPreserveList)>("TF_GetNodesToPreserveList");
  auto new_status = Find<decltype(&TF_NewStatus)>("TF_NewStatus");
  auto delete_status = Find<decltype(&TF_DeleteStatus)>("TF_DeleteStatus");
  auto code = Find<decltype(&TF_GetCode)>("TF_GetCode");
  if (!size_of || !list || !new_status || !delete_status || !code) return false;
  TF_Status* status = new_status();
  int count = 0;
  size_t bytes = 0;
  size_of(item, &count, &bytes, status);
  bool ok = code(status) == TF_OK;
  if (ok && count > 0) {
    std::vector<char*> values(count);
    std::vector<size_t> lengths(count);
    std::vector<char> storage(bytes);
    list(item, values.data(), lengths.data(), count, storage.data(), bytes, status);
    ok = code(status) == TF_OK;
    for (int i = 0; ok && i < count; ++i) names->append(values[i], lengths[i]).push_back('\n');
  }
  delete_status(status);
  return ok;
}

void* Create() { return &g_state; }
void Destroy(void*) {}
void FreeBuffer(void* data, size_t) { free(data); }

void Optimize(void*, const TF_Buffer* graph, const TF_GrapplerItem* item, TF_Buffer* out, TF_Status* status) {
  const StitchfleetRewrite rewrite = g_rewrite.load();
  std::string preserve;
  void* changed = nullptr;
  size_t bytes = 0;
  if (rewrite != nullptr && NodesToPreserve(item, &preserve) &&
      rewrite(graph->data, graph->length, preserve.c_str(), &changed, &bytes) == 0 && changed != nullptr) {
    out->data = changed;
    out->length = bytes;
    out->data_deallocator = FreeBuffer;
    TF_SetStatus(status, TF_OK, "");
    return;
  }
  TF_SetStatus(status, TF_ABORTED, "stitchfleet: nothing to do");
}

}  // namespace

extern "C" {

void stitchfleet_set_rewrite(StitchfleetRewrite rewrite) { g_rewrite.store(rewrite); }

// TensorFlow takes one optimizer per library, for one kind of device, and runs it on graphs with such a device: the call below
// registers it for the CPU, the call in the library of gpu_optimizer.cc for the GPU.
void stitchfleet_init_graph(TP_OptimizerRegistrationParams* params, TF_Status* status, const char* device_type) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->device_type = device_type;
  params->optimizer->create_func = Create;
  params->optimizer->optimize_func = Optimize;
  params->optimizer->destroy_func = Destroy;
  TF_SetStatus(status, TF_OK, "");
}

void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status* status) { stitchfleet_init_graph(params, status, "CPU"); }

}  // extern "C"
