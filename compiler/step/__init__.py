"""Splits the HLO of a whole training step into stitch ops.

partition     which ops form which stitch op; scopes: sets of nodes that may be merged; merging: whether merging two pays
"""
