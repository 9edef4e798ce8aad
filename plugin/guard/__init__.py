"""kernels: the state of each kernel of a job, from its request to verification, suspicion, judgment and revert."""
