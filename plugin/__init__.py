"""Switches stitching on in a TensorFlow job that knows nothing of it.

base/         settings, containment, versions of TensorFlow
ranks/        the ranks of a distributed job: who they are, how they find each other
native/       the stitch op in C++
graph/        graphs as TensorFlow offers them; to_hlo: its bridge to HLO
arms/         the switch between the job's own graph and the one with stitch ops; pairs of blocks of both
clusters/     which operators become one kernel, and its body
while_loops/  what leaves a loop, and loops as one op
stitching/    what becomes of an offered graph
service/      the compile service; bundles of mismatches
guard/        each kernel's state, from request to revert
job/          a training process: its functions and their phases, its records
reporting/    summary, explanation, pictures
entry/        hooks in TensorFlow; bootstrap/: how Python finds us
commands/     `stitchfleet run | doctor`; command.py finds all commands

A room imports those above it in this list (a contract in setup.cfg).
"""
