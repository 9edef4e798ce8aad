"""One training process under stitchfleet.

job           the controller of the process; program: one training function and its phases
lockstep      jobs of several ranks: functions whose steps all ranks take together, in one arm
training      which functions are the training; records: writes measurements to the spool
saving_text   a measured saving as facts and in words
shape_watch   clusters whose shapes never settle; trace_budget: which functions are worth a second executor
"""
