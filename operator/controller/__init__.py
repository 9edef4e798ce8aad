"""`stitchfleet controller`: one replica, which makes the week's reports from the database and keeps the database in order.

command.py   the command, and kopf's handlers: one line each
conditions.py  status conditions in the standard shape
weekly.py    a SavingsReport's status from the database: what telemetry's report has, as an object's status
loops.py     looks that are taken again and again, contained
keeper.py    reports of the weeks that need one, freezing, retention
roster.py    tells owners of pods why one was not injected, and jobs that they are to stop stitching
releaser.py  lets pods go whose payload cannot be pulled
metrics.py   what is counted of all that, for Prometheus
"""
