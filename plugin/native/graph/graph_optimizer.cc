// A graph-optimizer plugin (TensorFlow's C API) that passes each placed graph to a callback in Python.
//
// TensorFlow optimizes a graph in passes, mostly two, and offers it after each (MetaOptimizer::OptimizeGraph in meta_optimizer.cc). The
// callback chooses the last one: what it gets then is the graph that runs without us.
//
// TensorFlow treats TF_ABORTED as "nothing to do" and keeps the graph: that is also the result of every failure of ours. The user's
// optimizer settings are not changed: every tri-state of the plugin's configuration has its default.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/c/tf_buffer.h"
#include "tensorflow/c/tf_status.h"

// The callback. pass: 1 or 2; graph: a serialized GraphDef; preserve: names of nodes that must stay, one per line. Returns 0 and a
// malloc'ed GraphDef in *out, or any other number to leave the graph as it is.
typedef int (*StitchfleetRewrite)(int pass, const void* graph, size_t bytes, const char* preserve, void** out, size_t* out_bytes);

namespace {

std::atomic<StitchfleetRewrite> g_rewrite{nullptr};
// The optimizers that TensorFlow knows: the CPU's, and the GPU's. A graph with both devices is offered by both in each pass.
int g_optimizers[] = {0, 1};

// The functions of TensorFlow's C API that a graph optimizer calls. They are found at run time: they are in libtensorflow_cc, which the
// pip wheel's link flags do not include.
struct Api {
#define STITCHFLEET_FUNCTIONS(F)                                                                                              \
  F(TF_NewStatus) F(TF_DeleteStatus) F(TF_GetCode) F(TF_NewBuffer) F(TF_DeleteBuffer) F(TF_GetNodesToPreserveListSize)        \
  F(TF_GetNodesToPreserveList) F(TF_NewGraphProperties) F(TF_DeleteGraphProperties) F(TF_InferStatically)                     \
  F(TF_GetInputPropertiesListSize) F(TF_GetInputPropertiesList)
#define STITCHFLEET_FUNCTION(name) decltype(&::name) name = reinterpret_cast<decltype(&::name)>(Find(#name));
  STITCHFLEET_FUNCTIONS(STITCHFLEET_FUNCTION)

  // Null if this TensorFlow lacks one.
  static const Api* Get() {
    static const Api api;
#define STITCHFLEET_IS_FOUND(name) && api.name != nullptr
    static const bool complete = true STITCHFLEET_FUNCTIONS(STITCHFLEET_IS_FOUND);
    return complete ? &api : nullptr;
  }

 private:
  static void* Find(const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) {
      static void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOW | RTLD_NOLOAD);
      if (library != nullptr) found = dlsym(library, name);
    }
    return found;
  }
};

// Returns false if the names cannot be read; the graph must not be rewritten then.
bool NodesToPreserve(const Api& api, const TF_GrapplerItem* item, std::string* names) {
  TF_Status* status = api.TF_NewStatus();
  int count = 0;
  size_t bytes = 0;
  api.TF_GetNodesToPreserveListSize(item, &count, &bytes, status);
  bool ok = api.TF_GetCode(status) == TF_OK;
  if (ok && count > 0) {
    std::vector<char*> values(count);
    std::vector<size_t> lengths(count);
    std::vector<char> storage(bytes);
    api.TF_GetNodesToPreserveList(item, values.data(), lengths.data(), count, storage.data(), bytes, status);
    ok = api.TF_GetCode(status) == TF_OK;
    for (int i = 0; ok && i < count; ++i) names->append(values[i], lengths[i]).push_back('\n');
  }
  api.TF_DeleteStatus(status);
  return ok;
}

// The graph that is being offered on this thread, and the static shapes in it, which are inferred when they are first asked for.
thread_local const TF_GrapplerItem* t_item = nullptr;
thread_local TF_GraphProperties* t_properties = nullptr;

// The static shapes of the offered graph; null if there is none, or if TensorFlow cannot infer them.
TF_GraphProperties* Properties(const Api& api, TF_Status* status) {
  if (t_properties != nullptr || t_item == nullptr) return t_properties;
  TF_GraphProperties* made = api.TF_NewGraphProperties(t_item);
  // No feed's shape is taken for granted, and no value is kept.
  api.TF_InferStatically(made, 0, 0, 0, 0, status);
  if (api.TF_GetCode(status) == TF_OK) return t_properties = made;
  api.TF_DeleteGraphProperties(made);
  return nullptr;
}

// Appends to `found` a node's number of operands, and of each the length and bytes of its OpInfo.TensorProperties; -1 if not known.
void AppendOperands(const Api& api, TF_GraphProperties* properties, const char* name, TF_Status* status, std::string* found) {
  auto append = [found](int32_t number) { found->append(reinterpret_cast<const char*>(&number), sizeof number); };
  int count = 0;
  bool ok = properties != nullptr;
  if (ok) {
    api.TF_GetInputPropertiesListSize(properties, name, &count, status);
    ok = api.TF_GetCode(status) == TF_OK;
  }
  std::vector<TF_Buffer*> buffers;
  for (int i = 0; ok && i < count; ++i) buffers.push_back(api.TF_NewBuffer());
  if (ok && count > 0) {
    api.TF_GetInputPropertiesList(properties, name, buffers.data(), count, status);
    ok = api.TF_GetCode(status) == TF_OK;
  }
  append(ok ? count : -1);
  for (TF_Buffer* buffer : buffers) {
    if (ok) {
      append(static_cast<int32_t>(buffer->length));
      found->append(static_cast<const char*>(buffer->data), buffer->length);
    }
    api.TF_DeleteBuffer(buffer);
  }
}

// The pass after which a graph is being offered on this thread by an optimizer. One graph's passes follow one another, with the same
// item. A graph that is too small for a second pass leaves its first one noted; the next graph is taken for it if the stack has its item
// in the same place and it has the same names to preserve, and is then rewritten after its first pass.
int PassOf(int optimizer, const TF_GrapplerItem* item, const std::string& preserve) {
  struct First {
    const TF_GrapplerItem* item = nullptr;
    std::string preserve;
  };
  thread_local First noted[std::size(g_optimizers)];
  First& first = noted[optimizer];
  const int pass = first.item == item && first.preserve == preserve ? 2 : 1;
  first = pass == 1 ? First{item, preserve} : First();
  return pass;
}

template <int optimizer>
void* Create() {
  return &g_optimizers[optimizer];
}
void Destroy(void*) {}
void FreeBuffer(void* data, size_t) { free(data); }

void Optimize(void* optimizer, const TF_Buffer* graph, const TF_GrapplerItem* item, TF_Buffer* out, TF_Status* status) {
  const StitchfleetRewrite rewrite = g_rewrite.load();
  std::string preserve;
  void* changed = nullptr;
  size_t bytes = 0;
  bool rewritten = false;
  const Api* api = Api::Get();
  if (rewrite != nullptr && api != nullptr && NodesToPreserve(*api, item, &preserve)) {
    t_item = item;
    const int pass = PassOf(*static_cast<int*>(optimizer), item, preserve);
    rewritten = rewrite(pass, graph->data, graph->length, preserve.c_str(), &changed, &bytes) == 0 && changed != nullptr;
    t_item = nullptr;
    if (t_properties != nullptr) api->TF_DeleteGraphProperties(t_properties);
    t_properties = nullptr;
  }
  if (rewritten) {
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

// Within a rewrite: the static shapes of the operands of nodes. names: of nodes, each with a newline at its end. Returns a malloc'ed
// buffer of *bytes, the nodes one after the other (AppendOperands), or null.
void* stitchfleet_operand_shapes(const char* names, size_t* bytes) {
  const Api* api = Api::Get();
  if (api == nullptr) return nullptr;
  std::string found;
  TF_Status* status = api->TF_NewStatus();
  TF_GraphProperties* properties = Properties(*api, status);
  for (const char* end; (end = strchr(names, '\n')) != nullptr; names = end + 1) {
    AppendOperands(*api, properties, std::string(names, end).c_str(), status, &found);
  }
  api->TF_DeleteStatus(status);
  void* memory = malloc(found.size() + 1);
  if (memory != nullptr) memcpy(memory, found.data(), found.size());
  *bytes = found.size();
  return memory;
}

// TensorFlow takes one optimizer per library, for one kind of device, and runs it on graphs with such a device: the call below
// registers it for the CPU, the call in the library of gpu_optimizer.cc for the GPU.
void stitchfleet_init_graph(TP_OptimizerRegistrationParams* params, TF_Status* status, const char* device_type) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->device_type = device_type;
  params->optimizer->create_func = strcmp(device_type, "GPU") == 0 ? Create<1> : Create<0>;
  params->optimizer->optimize_func = Optimize;
  params->optimizer->destroy_func = Destroy;
  TF_SetStatus(status, TF_OK, "");
}

void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status* status) { stitchfleet_init_graph(params, status, "CPU"); }

}  // extern "C"
