"""kernel_text: a kernel in CUDA C, with cuda_prelude.h before it.

survey, layout  decide which thread does what in a nest, and where values are stored; body writes it; vectors: accesses of several
                elements at once
reduction       sums across groups of threads
chain           the longest chain of dependent steps of a work item, for the cost model
"""
