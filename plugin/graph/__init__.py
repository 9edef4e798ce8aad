"""TensorFlow graphs, as GraphDefs offered for optimization.

placed_graph       a graph with its nodes, ports and devices; control_flow: frames and order
tf_ops             what each operator needs to be lowered; dtypes: DataType's numbers
apply_ops          the fused optimizers' formulas; fused: operators that TensorFlow had merged, taken apart
trains             whether a graph is a training function's; model_fingerprint: which model it is
to_hlo             a cluster's function to HLO, by TensorFlow's own bridge
"""
