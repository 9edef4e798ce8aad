#include "loop/inner_kernels.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/graph_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/tensor_id.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/profiler/lib/traceme.h"

namespace stitchfleet {
namespace {

using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::OpKernelContext;

int DataInputs(const NodeDef& node) {
  return static_cast<int>(std::count_if(node.input().begin(), node.input().end(), [](const std::string& name) { return name[0] != '^'; }));
}

// Adds the failed node's name to an error as the executor does: TensorFlow's Python code finds the line of the job's code by it.
Status UnderItsName(const Status& status, const std::string& name) {
  if (absl::StrContains(Message(status), "{{node ")) return status;
  return WithText(status, absl::StrCat(Message(status), "\n\t [[{{node ", name, "}}]]"));
}

}  // namespace

Status UseOneDnn(GraphDef* graph_def) {
  tensorflow::GraphOptimizationPass* pass = nullptr;
  for (const auto& [grouping, phases] : tensorflow::OptimizationPassRegistry::Global()->groups()) {
    if (grouping != tensorflow::OptimizationPassRegistry::POST_PARTITIONING) continue;
    for (const auto& [phase, passes] : phases) {
      for (const auto& candidate : passes) {
        if (candidate->name() == "MklLayoutRewritePass") pass = candidate.get();
      }
    }
  }
  if (pass == nullptr) return Ok();
  std::unordered_map<std::string, std::unique_ptr<tensorflow::Graph>> partitions;
  auto& graph = partitions["inner"];
  graph = std::make_unique<tensorflow::Graph>(tensorflow::OpRegistry::Global());
  std::unordered_map<std::string, tensorflow::Node*> nodes;
  for (const NodeDef& definition : graph_def->node()) {
    Status status;
    tensorflow::Node* node = graph->AddNode(definition, &status);
    TF_RETURN_IF_ERROR(status);
    nodes[definition.name()] = node;
    for (int i = 0; i < definition.input_size(); ++i) {
      const tensorflow::TensorId source = tensorflow::ParseTensorName(definition.input(i));
      const auto found = nodes.find(std::string(source.node()));
      if (found == nodes.end()) return tensorflow::errors::InvalidArgument("stitchfleet: a program without ", definition.input(i));
      if (source.index() == tensorflow::Graph::kControlSlot) graph->AddControlEdge(found->second, node);
      else graph->AddEdge(found->second, source.index(), node, i);
    }
  }
  tensorflow::FixupSourceAndSinkEdges(graph.get());
  tensorflow::GraphOptimizationPassOptions options;
  options.partition_graphs = &partitions;
  TF_RETURN_IF_ERROR(pass->Run(options));
  std::unordered_map<std::string, const tensorflow::Node*> rewritten;
  for (const tensorflow::Node* node : graph->op_nodes()) rewritten[node->name()] = node;
  GraphDef changed = *graph_def;
  for (NodeDef& definition : *changed.mutable_node()) {
    const auto found = rewritten.find(definition.name());
    // The pass has merged operators, or changed their layout: the graph stays as it is.
    if (found == rewritten.end() || found->second->num_inputs() != DataInputs(definition)) return Ok();
    if (found->second->type_string() == definition.op()) continue;
    definition.set_op(found->second->type_string());
    *definition.mutable_attr() = found->second->def().attr();
  }
  *graph_def = std::move(changed);
  return Ok();
}

Status MakeInnerKernel(tensorflow::OpKernelConstruction* c, const std::shared_ptr<const tensorflow::NodeProperties>& properties,
                             std::unique_ptr<tensorflow::OpKernel>* made) {
  tensorflow::OpKernel* kernel = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::CreateOpKernel(c->device_type(), c->device(), c->device()->GetAllocator({}), c->function_library(),
                                                c->resource_manager(), properties, c->graph_def_version(), &kernel));
  made->reset(kernel);
  return Ok();
}

Status MakeLoneKernel(tensorflow::OpKernelConstruction* c, NodeDef node, const std::vector<tensorflow::DataType>& operands,
                      std::unique_ptr<tensorflow::OpKernel>* made) {
  GraphDef graph;
  node.clear_input();
  for (size_t i = 0; i < operands.size(); ++i) {
    NodeDef* operand = graph.add_node();
    operand->set_name(absl::StrCat("stitchfleet_operand_", i));
    operand->set_op("Placeholder");
    operand->set_device(node.device());
    (*operand->mutable_attr())["dtype"].set_type(operands[i]);
    node.add_input(operand->name());
  }
  *graph.add_node() = std::move(node);
  TF_RETURN_IF_ERROR(tensorflow::AddDefaultAttrsToGraphDef(&graph, *tensorflow::OpRegistry::Global(), 0));
  TF_RETURN_IF_ERROR(UseOneDnn(&graph));
  std::shared_ptr<const tensorflow::NodeProperties> properties;
  TF_RETURN_IF_ERROR(tensorflow::NodeProperties::CreateFromNodeDef(graph.node(graph.node_size() - 1),
                                                                   tensorflow::OpRegistry::Global(), &properties));
  return MakeInnerKernel(c, properties, made);
}

void Inherit(OpKernelContext* ctx, OpKernelContext::Params* params) {
  params->step_id = ctx->step_id();
  params->start_time_usecs = ctx->start_time_usecs();
  params->deadline = ctx->deadline();
  params->device = static_cast<tensorflow::DeviceBase*>(ctx->device());
  params->resource_manager = ctx->resource_manager();
  params->step_container = ctx->step_container();
  params->rendezvous = ctx->rendezvous();
  params->collective_executor = ctx->collective_executor();
  params->session_state = ctx->session_state();
  params->session_handle = ctx->session_handle();
  params->session_metadata = ctx->session_metadata();
  params->tensor_store = ctx->tensor_store();
  params->cancellation_manager = ctx->cancellation_manager();
  params->op_device_context = ctx->op_device_context();
  params->frame_iter = ctx->frame_iter();
  params->call_frame = ctx->call_frame();
  params->function_library = ctx->function_library();
  params->runner = ctx->runner();
  params->run_all_kernels_inline = ctx->run_all_kernels_inline();
  params->slice_reader_cache = ctx->slice_reader_cache();
}

Status CallInnerKernel(tensorflow::OpKernel* kernel, absl::Span<const tensorflow::TensorValue> operands,
                             const std::vector<tensorflow::AllocatorAttributes>& attributes, OpKernelContext::Params& params, int outputs,
                             tensorflow::Tensor* results) {
  params.op_kernel = kernel;
  params.inputs = operands;
  params.input_alloc_attrs = absl::MakeConstSpan(attributes.data(), operands.size());
  params.output_attr_array = attributes.data();
  OpKernelContext inner(&params, outputs);
  {
    tensorflow::profiler::TraceMe activity([kernel, &inner] { return kernel->TraceString(inner, /*verbose=*/false); });
    if (tensorflow::AsyncOpKernel* asynchronous = kernel->AsAsync()) {
      absl::Notification finished;
      asynchronous->ComputeAsync(&inner, [&finished] { finished.Notify(); });
      finished.WaitForNotification();
    } else {
      kernel->Compute(&inner);
    }
  }
  if (!inner.status().ok()) return UnderItsName(inner.status(), kernel->name());
  for (int k = 0; k < outputs; ++k) {
    const tensorflow::TensorValue value = inner.release_output(k);
    if (value.tensor == nullptr) {
      return UnderItsName(tensorflow::errors::Internal("Missing ", k, "-th output from the operator"), kernel->name());
    }
    results[k] = std::move(*value.tensor);
    delete value.tensor;
  }
  return Ok();
}

Status CallLoneKernel(tensorflow::OpKernel* kernel, std::vector<tensorflow::Tensor> operands, OpKernelContext::Params& params,
                      tensorflow::Tensor* result) {
  std::vector<tensorflow::TensorValue> values;
  for (tensorflow::Tensor& operand : operands) values.emplace_back(&operand);
  const std::vector<tensorflow::AllocatorAttributes> attributes(values.size() + 1);
  return CallInnerKernel(kernel, values, attributes, params, 1, result);
}

}  // namespace stitchfleet
