"""Which operators of a graph become one kernel, and what that kernel's body is.

clusters      finds the clusters; updates: the members of an optimizer's update
data_extents  operators with data-dependent extents, which stay out; recompute: members that are computed again in a reader
bodies        a cluster's function, for the fallback and for the compiler; addends: the order in which TensorFlow adds up
end_of_data   effects of a call for which there is no more data, which are in no cluster with what reads it
demands       operators' demands on their operands' values; rare_data: operators whose results on NaN, zeros, ... differ in XLA
resizes       resizes of images, as gathers, interpolations and sums; resize_axes: the positions along an axis
rewrite       replaces the clusters by Stitch ops; collectives_first: what leads to a collective runs before what else is ready
step_graph    the step as a small graph for people; step_blocks makes it
"""
