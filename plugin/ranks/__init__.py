"""A job of several ranks (Horovod, MPI): who they are, and how they find each other.

world    which rank this process is, as its launcher says; run_id: one for all ranks
exchange documents that ranks hand to rank 0
store    Horovod's rendezvous store, as a client of the standard library
"""
