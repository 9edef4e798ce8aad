"""Loops of a graph: what does not depend on the iteration leaves them, and a whole loop becomes one op.

fold          finds loops and makes the ops
program       a loop's body as the op interprets it
variables     a frame's variables; invariants, reads, products: what leaves the loop
"""
