// TensorFlow's kernels inside of an operator of ours: made when it is made, called when it is called.

#ifndef STITCHFLEET_PLUGIN_NATIVE_LOOP_INNER_KERNELS_H_
#define STITCHFLEET_PLUGIN_NATIVE_LOOP_INNER_KERNELS_H_

#include <memory>
#include <vector>

#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stitchfleet {

// The products and convolutions of a graph as TensorFlow would run them: with oneDNN it renames them in a pass over the graph that it
// is about to execute (mkl_layout_pass.cc in TensorFlow's core/common_runtime), which does not see what an operator of ours holds.
// Producers stand before their consumers; attributes have their defaults filled in.
absl::Status UseOneDnn(tensorflow::GraphDef* graph);

// A kernel on the device of the operator that is being made.
absl::Status MakeInnerKernel(tensorflow::OpKernelConstruction* c, const std::shared_ptr<const tensorflow::NodeProperties>& properties,
                             std::unique_ptr<tensorflow::OpKernel>* made);

// What a call of an inner kernel has from the call of the operator around it: all but the kernel, its inputs and their attributes.
void Inherit(tensorflow::OpKernelContext* ctx, tensorflow::OpKernelContext::Params* params);

// Calls a kernel with what `params` inherited: `outputs` of them into `results`. An error names the kernel's node as the executor's
// would: TensorFlow's Python side finds the line of the job's code by it. `attributes`: default ones, as many as operands or outputs.
absl::Status CallInnerKernel(tensorflow::OpKernel* kernel, absl::Span<const tensorflow::TensorValue> operands,
                             const std::vector<tensorflow::AllocatorAttributes>& attributes,
                             tensorflow::OpKernelContext::Params& params, int outputs, tensorflow::Tensor* results);

}  // namespace stitchfleet

#endif  // STITCHFLEET_PLUGIN_NATIVE_LOOP_INNER_KERNELS_H_
