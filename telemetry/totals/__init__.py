"""The rows of a week to what each job and the fleet saved, and the revisions in which that is kept.

weekly       processes, jobs and totals of a week
freezing     a closed week's revision, pruning its iterations, deleting a namespace
"""
