// Hands its inputs on. It stands between a Stitch op and the operators that only lead to collectives (clusters/collectives_first.py).
//
// TensorFlow's executor runs what is inexpensive at once, on the thread that made it ready, and hands other operators to the thread
// pool first, whose own thread takes its latest task next (ExecutorState::ScheduleReady in common_runtime/executor.cc). So what
// this op makes ready runs before what the Stitch op itself has made ready.

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
