"""A job of several ranks (Horovod, MPI): which rank a process is, how ranks exchange data, and how they agree on a step.

world       the rank of this process, from its launcher's variables; one run id for all ranks
store       client of Horovod's rendezvous store (standard library only)
exchange    documents that the ranks send to rank 0
agreement   the step from which all ranks run stitched, and from which all run plain again: a pure state machine (docs/ranks.md)
collectives whether a step holds a collective of all ranks, so that they can count it; joins: when they no longer can
resets      when the ranks of an elastic job change
epoch       the part of the store in which they agree then
meeting     a store that rank 0 keeps; store_server: the program that keeps it; open_mpi: messages by which mpirun's ranks find it
multi_worker the workers of a tf.distribute strategy: their places, and a board by which they find it
courier     carries the agreement over the store, and lets a step wait for it for a bounded time
"""
