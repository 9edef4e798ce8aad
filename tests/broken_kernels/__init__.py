"""Kernels that are wrong on purpose, for fault tests; sitecustomize breaks those of a job."""
