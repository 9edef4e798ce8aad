"""Loops over elements, with loads, stores and reductions: what lowering makes and codegen prints.

loops        the tree; split: vector loops cut where their guards change; scratch: buffers that share bytes
"""
