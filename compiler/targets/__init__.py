"""targets: the processors and GPUs that kernels are made for, and what each can do."""
