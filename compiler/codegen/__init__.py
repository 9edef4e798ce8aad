"""Loops to text: c/ is shared by both backends, cpu/ writes C++, cuda/ writes CUDA C."""
