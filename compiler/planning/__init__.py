"""What becomes one loop nest, and in which scheme. Nothing here knows a loop's text.

groups       dominant ops and who goes with them; families: components alike
splitting    long reductions in parts; scans: sums of prefixes
schemes      local, regional or global: where each value lives (AStitch section 4)
mapping      tasks and threads to elements; mapping_choice
access       which element of what is read; normal: a graph in the form that planning expects; cost; accumulators
rules        what can be switched off
plan         all of it
"""
