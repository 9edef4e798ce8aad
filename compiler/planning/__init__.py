"""Decides which ops share a loop nest, and each result's scheme. Nothing here knows how a loop is written.

groups       dominant ops and the ops that follow them; families: components of a graph that are alike
splitting    long reductions in parts; scans: prefix sums; searches: positions of maxima
placement    which ops share a nest; schemes: local, regional or global, where each result lives (AStitch section 4)
mapping      which elements make a row; mapping_choice: how the first segment of a nest is mapped
execution    how a nest is executed: mode, rows, tasks; transposes, scatters, products: for such nests; cost
stored_first what is stored in order before a transpose moves it
access       which elements are read; normal: the form of graphs that planning expects; accumulators: dtypes of sums
rules        which rules of the planner can be switched off
plan         the whole plan with the kernel's phases; lowering follows it and explaining prints it, and neither decides anything
"""
