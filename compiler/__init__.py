"""HLO in, checked native kernels out; README.md follows one LayerNorm through it.

support/ targets/ toolchain/   what machines are, and their compilers
ir/ ops/ passes/ hlo/          a cluster's graph, what its ops mean, where it comes from
planning/ explaining/          nests, schemes (regional or global), modes, tasks, phases; a plan in words
loops/ lowering/               a plan to loops; lowering/reduction/
codegen/                       loops to C++ (cpu/) and CUDA C (cuda/: reduction among them)
check/                         the oracle, and who asks it
kernel/ pipeline/              built, checked, kept
step/ commands/                whole steps; what people call

Which may import which stands in setup.cfg.
"""
