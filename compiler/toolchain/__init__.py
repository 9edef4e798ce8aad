"""host: the C++ compiler that is found, and how it is called. nvrtc: CUDA's compiler as a library."""
