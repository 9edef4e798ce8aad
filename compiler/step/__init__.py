"""A whole training step's HLO.

partition     which ops form which stitch op; scopes: of the graph contracted by that; merging: two that had better be one
whole_step    a kernel for each
"""
