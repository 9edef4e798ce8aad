"""`stitchfleet controller`: one replica, which makes the week's reports from the database and maintains the database.

command.py     the command, and kopf's handlers: one line each
conditions.py  status conditions in the standard shape
weekly.py      a SavingsReport's status, from telemetry's weekly report
loops.py       repeated passes over the fleet, with errors contained
keeper.py      the weekly reports; freezes weeks and drops old iterations
roster.py      tells the owner of a pod why it was not injected, and tells jobs to stop stitching
releaser.py    releases pods whose payload cannot be pulled
metrics.py     the controller's Prometheus metrics
"""
