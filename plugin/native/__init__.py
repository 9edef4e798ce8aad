"""The TensorFlow op in C++, and library.py, which builds, loads and speaks to it."""
