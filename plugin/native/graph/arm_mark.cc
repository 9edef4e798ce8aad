// Marks the arm that a nested function's graph belongs to.
//
// A function that TensorFlow does not inline (every Keras LSTM and GRU) is instantiated by the kernel of its call node, on one of
// TensorFlow's own threads, with the ConfigProto in the node's attribute: the thread of the step is not known there. But a
// ConfigProto may name optimizers with parameters. In the stitched arm each call node names this optimizer, with the arm's mark. It
// exists for one run of TensorFlow's graph optimizers over the body, on the thread that then offers the body to the plugin. It does
// not change the graph.

#include <string>
#include <utility>

#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"
#include "versions/status.h"

namespace {

thread_local std::string t_mark;

}  // namespace

namespace tensorflow {
namespace grappler {

class StitchfleetArmMark : public CustomGraphOptimizer {
 public:
  // One run may start another on the same thread before it ends, so the marks form a stack.
  ~StitchfleetArmMark() override { t_mark = std::move(outer_); }

  std::string name() const override { return "stitchfleet_arm_mark"; }
  bool UsesFunctionLibrary() const override { return false; }

  ::stitchfleet::Status Init(const RewriterConfig_CustomGraphOptimizer* config) override {
    if (config == nullptr) return ::stitchfleet::Ok();
    const auto found = config->parameter_map().find("mark");
    if (found != config->parameter_map().end()) t_mark = std::string(found->second.s());
    return ::stitchfleet::Ok();
  }

  ::stitchfleet::Status Optimize(Cluster*, const GrapplerItem&, GraphDef*) override {
    return tensorflow::errors::Aborted("stitchfleet: a mark changes nothing");
  }

 private:
  std::string outer_ = t_mark;
};

REGISTER_GRAPH_OPTIMIZER_AS(StitchfleetArmMark, "stitchfleet_arm_mark");

}  // namespace grappler
}  // namespace tensorflow

extern "C" {

// The mark of the graph that is being offered on this thread; "" if it has none. Valid until the callback returns.
const char* stitchfleet_arm_mark() { return t_mark.c_str(); }

}  // extern "C"
