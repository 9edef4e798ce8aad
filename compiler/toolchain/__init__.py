"""host: finds and runs the machine's C++ compiler. nvrtc: CUDA's compiler, called as a library."""
