"""Switches stitching on in an unchanged TensorFlow job.

base/         settings, containment
versions/     what depends on the version of TensorFlow and Keras
ranks/        the ranks of a distributed job: who they are, how they find each other
native/       the Stitch op in C++
graph/        graphs as TensorFlow offers them; to_hlo: lowers a cluster to HLO
arms/         the switch between the job's own graph and the graph with Stitch ops; pairs of blocks of both
clusters/     which operators become one kernel, and its body
while_loops/  moves nodes out of loops, and makes loops one op
stitching/    rewrites an offered graph
service/      the compile service; bundles of failed comparisons
guard/        each kernel's state, from request to revert
job/          a training process: its functions and their phases, its records
reporting/    summary, explanation, pictures
entry/        hooks in TensorFlow; bootstrap/: makes Python call them
commands/     `stitchfleet run | doctor`; command.py finds all commands

A folder may import only from the folders above it in this list (a contract in setup.cfg).
"""
