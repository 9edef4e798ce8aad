"""The benchmark: a fair comparison of whole training jobs on one machine.

    command      arguments, the table, the JSON file
    contestants  what is compared: workloads, and the ways of running them
    processes    a contestant's processes: found by a mark in their environment, stopped, continued, ended; the watchdog
    race         warm-up of one after the other, then slices in turn
    figures      from slices and step logs to medians and ratios with intervals (pure functions)
    launches     what one iteration launches and writes
    coverage     the share of a step's memory-intensive time that is in stitch ops, and what stays out
    collectives  when the collectives of a job of several ranks start, and the time of a step in them
    pinned       puts a rank of such a job on one core
    recorder     runs in the process of a workload for `coverage` and `collectives`
    trace        reads TensorFlow's profile
    markdown     a file of results as a table for a page
    machine      describes the machine and the versions
    floors       every kernel of the workloads' steps and generated ones (patterns), compared with its byte floor
    changed      which kernels of kept clusters differ from another checkout's, and their times
    functions    elementary functions, time per element, compared with glibc's vector library
    kernels_cpu  single kernels of many sizes (kernel_cases), compared with TensorFlow, XLA and a copy
    products     the matrix products of steps (products_alone: one by itself), compared with the machine's arithmetic
    peers        other frameworks' compilers on the same models
    arithmetic   floating-point operations per second from registers alone
    progress     lines about the progress
    turns        timing of small functions in turns
    calls        the call of a traced function with TensorFlow's lookup of its trace, and with ours
    idle         overhead of a step with the plugin active and nothing switched on
    busy         how soon a job is stitched on a machine that has other work
    recording    overhead of recording and sending in a job
    telemetry    the fleet's side: ingest, storage, a week of 70,000 jobs (on a server that `postgres` starts)
    admissions   latency of the webhook

and, apart from the races, XLA's kernels for the same steps:

    step_kernels the number of kernels that a step needs by our plan, compared with XLA

    export_hlo   exports the workloads' steps as HLO into tests/fixtures/hlo
    hlo_short    the short form of these files
    xla_kernels  the number of kernels that XLA makes of each
    xla_gpu_hlo  the output of XLA's GPU backend for each, on a machine without a GPU

Contestants are not aware of the race. Each is started as a separate job, warmed up, and stopped (SIGSTOP). Then each in turn has the
machine alone for some seconds, in an order that changes from round to round, so that changes of the machine over minutes (heat, a
neighbour) affect all alike. Steps that were interrupted by a stop are found by their time stamps and dropped.
"""
