"""Which operators of a graph become one kernel, and what that kernel's body is.

clusters      finds them
bodies        the pure function of each; rare_data: operators spelled out, as their values on rare data differ
demands       what an operator would refuse, checked before the kernel runs
updates       variables that a cluster writes; data_extents, recompute: what enters and what is computed twice
rewrite       puts the clusters' ops into the graph
step_graph    the step as a small graph for people; step_blocks makes it
"""
