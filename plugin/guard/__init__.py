"""kernels: the state of each kernel of a job, from the request to suspicion, verdict and revert."""
