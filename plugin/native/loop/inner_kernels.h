// TensorFlow's kernels inside an op of ours: created with it, and called in its calls.

#ifndef STITCHFLEET_PLUGIN_NATIVE_LOOP_INNER_KERNELS_H_
#define STITCHFLEET_PLUGIN_NATIVE_LOOP_INNER_KERNELS_H_

#include <memory>
#include <vector>

#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "versions/status.h"

namespace stitchfleet {

// Changes the products and convolutions of a graph to those that TensorFlow would run. With oneDNN it renames them in a pass over the
// graph to be executed (mkl_layout_pass.cc in TensorFlow's core/common_runtime), which does not see the operators inside an op of
// ours. In `graph` producers must come before their consumers, and attributes must have their defaults filled in.
Status UseOneDnn(tensorflow::GraphDef* graph);

// Creates a kernel on the device of the op under construction.
Status MakeInnerKernel(tensorflow::OpKernelConstruction* c, const std::shared_ptr<const tensorflow::NodeProperties>& properties,
                             std::unique_ptr<tensorflow::OpKernel>* made);

// The same for a node that is not in a graph: with oneDNN's kernel if TensorFlow would run that, and the defaults of attributes filled
// in. operands: their dtypes.
Status MakeLoneKernel(tensorflow::OpKernelConstruction* c, tensorflow::NodeDef node, const std::vector<tensorflow::DataType>& operands,
                      std::unique_ptr<tensorflow::OpKernel>* made);

// Copies the parameters of a call of the outer op for calls of inner kernels: all except the kernel, its inputs and their attributes.
void Inherit(tensorflow::OpKernelContext* ctx, tensorflow::OpKernelContext::Params* params);

// Calls a kernel with `params` from Inherit, and stores its `outputs` outputs in `results`. An error names the kernel's node as in
// the executor, by which TensorFlow's Python code finds the line of the job's code. `attributes`: default values, at least as many as
// operands and as outputs.
Status CallInnerKernel(tensorflow::OpKernel* kernel, absl::Span<const tensorflow::TensorValue> operands,
                             const std::vector<tensorflow::AllocatorAttributes>& attributes,
                             tensorflow::OpKernelContext::Params& params, int outputs, tensorflow::Tensor* results);

// Calls a kernel of one output with operands in the memory of its device.
Status CallLoneKernel(tensorflow::OpKernel* kernel, std::vector<tensorflow::Tensor> operands,
                      tensorflow::OpKernelContext::Params& params, tensorflow::Tensor* result);

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_LOOP_INNER_KERNELS_H_
