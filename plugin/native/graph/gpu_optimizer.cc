// Passes graphs with a GPU to the same callback. It is a separate library, since TensorFlow takes one graph optimizer per library.
//
// It is linked against libstitchfleet_tf.so, whose optimizer it registers a second time.

#include "tensorflow/c/experimental/grappler/grappler.h"

extern "C" {

void stitchfleet_init_graph(TP_OptimizerRegistrationParams* params, TF_Status* status, const char* device_type);

void TF_InitGraph(TP_OptimizerRegistrationParams* params, TF_Status* status) { stitchfleet_init_graph(params, status, "GPU"); }

}  // extern "C"
