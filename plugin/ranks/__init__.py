"""A job of several ranks (Horovod, MPI): who they are, how they find each other, and how they agree.

world       which rank this process is, as its launcher says; run_id: one for all ranks
store       Horovod's rendezvous store, as a client of the standard library
exchange    documents that ranks hand to rank 0
agreement   the step from which all ranks run stitched, and from which all run plain again: a pure state machine (docs/ranks.md)
collectives whether a step ties all ranks together, so that they can count it; joins: when they cannot any more
courier     carries it over the store, and lets a step wait for it, within bounds
"""
