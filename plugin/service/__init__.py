"""The compile service, a process of its own that makes and checks kernels.

client    the job's side; serving: the process; messages: what they say to each other
bundle    a mismatch kept as files, and the verdict on it
"""
