"""While loops of a graph: nodes that do not depend on the iteration are moved out, and a whole loop becomes one op.

variables     a frame's variables
invariants    variables that do not change become constants of the frame; reads, products: variable reads and products are hoisted
fold          finds the loops that can become one op, and makes the ops
program       a loop's operators in the form that the op interprets
"""
