"""The benchmark: whole training jobs side by side on one machine, fairly.

    command      arguments, the table, the JSON file
    contestants  what is compared: workloads, and the ways of running one
    processes    a contestant's processes: found by a mark in their environment, stopped, continued, ended; the watchdog
    race         warm-up one after the other, then slices in turn
    figures      from slices and step logs to medians and ratios with intervals (pure functions)
    launches     what one iteration launches and writes
    coverage     how much of a step's memory-intensive time lies in stitch ops, and what stays out
    recorder     runs in the process of a workload for that
    trace        TensorFlow's profile, read
    machine      what it ran on
    floors       every kernel of the workloads' steps, and of patterns, beside its byte floor
    functions    elementary functions, an element, beside glibc's vector library

and beside the races, XLA's kernels for the same steps:

    export_hlo   the workloads' steps as HLO, into tests/fixtures/hlo
    hlo_short    the form that they have there
    xla_kernels  how many kernels XLA makes of each
    xla_gpu_hlo  what XLA's GPU backend makes of each, on a machine without a GPU

A contestant knows nothing of the race. Each is started as a job of its own, warmed up, and stopped (SIGSTOP); then each in turn is
alone on the machine for some seconds, in an order that changes from round to round, so that whatever the machine does over minutes
(heat, a neighbour) falls on all alike. Steps that a stop falls into are found by their time stamps and dropped.
"""
