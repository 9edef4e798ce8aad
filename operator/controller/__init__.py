"""`stitchfleet controller`: one replica, which makes the week's reports from the database and maintains the database.

command.py   the command, and kopf's handlers: one line each
conditions.py  status conditions in the standard shape
weekly.py    a SavingsReport's status, from telemetry's weekly report
loops.py     repeated passes over the fleet, with errors contained
keeper.py    reports of the weeks that need one, freezing, retention
roster.py    tells owners of pods why one was not injected, and tells jobs to stop stitching
releaser.py  releases pods whose payload cannot be pulled
metrics.py   Prometheus metrics of all this
"""
