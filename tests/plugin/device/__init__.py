"""Jobs on a GPU, whose driver runs each launch in the emulator (test_gpu.cc), and what doctor says of a machine's GPUs."""
