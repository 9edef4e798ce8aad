"""Kernels on a real GPU beside XLA's and TorchInductor's: `scripts/bench-gpu`.

prepare            on a machine without a GPU: kernels, HLO and packages in one folder
run                on the machine with the GPU: starts the workers, writes the results
table              the tables of a file of results
cases, micro       what is measured: how a prepared folder holds it; the micro cases
torch_functions    the micro cases as a PyTorch user writes them
steps, step_text   whole steps, with our kernels as custom calls (ffi)
hlo_text           a graph as HLO text
graphs             CUDA graphs by the driver API
workers            what the contestants' processes share: worker_ours, worker_xla, worker_torch
"""
