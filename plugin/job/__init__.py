"""One training process under stitchfleet.

job           all parts of it; program: one training function and its phases
lockstep      of several ranks: functions whose steps all ranks take together, in one arm
training      which functions are the training; records: what was measured goes to the spool
shape_watch   clusters whose shapes never settle; trace_budget: which functions are worth a second executor
"""
