"""What becomes one loop nest, and in which scheme. Nothing here knows a loop's text.

groups       dominant ops and who goes with them; families: components alike
splitting    long reductions in parts; scans: sums of prefixes
placement    which ops share a nest; schemes: local, regional or global, where each result lives (AStitch section 4)
mapping      tasks and threads to elements; mapping_choice
execution    how a nest is executed: mode, rows, tasks; transposes, scatters: those of such nests; cost
access       which element of what is read; normal: a graph in the form that planning expects; accumulators
rules        what can be switched off
plan         all of it, with the phases of the kernel: what lowering does and explaining prints, and neither decides
"""
