"""TensorFlow graphs, as GraphDefs offered for optimization.

placed_graph       a graph with its nodes, ports and devices; control_flow: frames, deadness and order
tf_ops             what lowering each operator needs
apply_ops          formulas of fused optimizer operators; fused: splits operators that TensorFlow has fused
memory_bound       memory-bound matrix products, which a cluster may have; small_products: and small ones in loops
batch_products, convolution_gradients: give batches of matrix products, and gradients of convolutions, a second kernel, of which
                   the faster one computes them
constants          frees constants of what they wait for, and drops those that are not read
pooling            keeps max pooling and its gradient together where oneDNN needs both
einsums            makes transposes and matrix products of einsums
node_defs          copies and replaces NodeDefs
trains             whether a graph is that of a training function; model_fingerprint: which model it computes
to_hlo             lowers a cluster's function to HLO by TensorFlow's own bridge
"""
