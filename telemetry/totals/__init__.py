"""From the rows of a week to what each job and the fleet saved, and the revisions in which that is kept.

weekly       processes, jobs and totals of a week
freezing     freezes a closed week as a revision, prunes its iterations, deletes a namespace
"""
