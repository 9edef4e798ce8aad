"""NVRTC's own PTX of the generated kernels, executed without a GPU.

    one = built(graph, plan_for_gpu(graph, H200)[1])       # NVRTC for the kernel's target, then g++
    outputs = execute(one, inputs, Schedule(seed=1))       # or one.complaint(Regime.NORMAL, Schedule(1)): judged by the oracle

    module         PTX taken apart
    instructions   the table of instructions in C++; what it lacks is refused by a line that names it
    translate      a module in C++, with mutants
    runtime.h      fibres, schedules, and the checks: its head says what each finds
    executable     built by g++, launched on arrays, judged

The source emulator (`cuda_emulator.h`) runs what the generator wrote; this runs what NVRTC made of it: its vectors, unrolled loops,
predicates and `ld.global.nc`, and the parts that the source emulator replaces, such as conversions of halves by the device and the
grid barrier. Both check the same things, apart from each other.

Not covered: what ptxas makes of the PTX (registers, spills, the machine's order of instructions); weak memory order, but for the
fences of the grid barrier; cooperative grids of more than a few blocks; a device's own approximations (`rcp.approx` and
`ex2.approx` give the nearest float or a neighbour; what the generated kernels have none of, such as `lg2.approx`, is refused).
"""
