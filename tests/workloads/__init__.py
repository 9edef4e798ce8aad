"""Whole models, plain and stitched. states, differences: what their variables hold, and how far two runs are apart."""
