// Hands its inputs on. It stands between a Stitch op and its readers, and once more before the operators that only lead to collectives
// (clusters/collectives_first.py).
//
// When a synchronous kernel ends, TensorFlow's executor runs what is inexpensive and ready at once, on the same thread, and hands other
// operators to the thread pool, whose own thread takes its latest task next. When an asynchronous kernel ends, as the Stitch op's, it
// hands over everything, in the order of the edges (ExecutorState::ScheduleReady in common_runtime/executor.cc).

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace stitchfleet {
namespace {

REGISTER_OP("StitchfleetHandOn")
    .Input("values: T")
    .Output("handed_on: T")
    .Attr("T: list(type) >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
      return tensorflow::Status();
    })
    .Doc("The inputs. It runs at once, whatever else is ready.");

class HandOnOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* c) override {
    for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
  }

  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("StitchfleetHandOn").Device(tensorflow::DEVICE_CPU), HandOnOp);

}  // namespace
}  // namespace stitchfleet
