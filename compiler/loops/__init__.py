"""Loops over elements, with loads, stores and reductions: lowering makes them, and codegen prints them.

loops        the loop tree; split: cuts vector loops where their guards change; scratch: lets buffers share bytes;
             uses: what statements read
"""
