"""All tests. A folder with the name of one of our packages has a folder for each of the package's; the others have a purpose:

benchmark, gpu             scripts/bench and scripts/bench-gpu
workloads                  whole models, plain and stitched
horovod, versions          jobs of several ranks; every supported version of TensorFlow
cluster                    a real Kubernetes on this machine
fixtures                   modules in HLO: layer_norm, which the pages explain, and hlo/, the workloads' whole steps
broken_kernels             kernels that are wrong on purpose
figures, kept, marks, pace, pages    what tests share
"""
