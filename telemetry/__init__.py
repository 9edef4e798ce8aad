"""What a job measured, from the training process to the weekly report.

pod/         in the training process: who the job is, the Recorder, the spool (standard library only)
statistics/  from paired blocks of steps to a saving with its confidence interval
shipping/    beside the training process: sends spool segments to the database or the ingest server
database/    tables, migrations, and rows from records
totals/      from the rows of a week to what each job and the fleet saved; freezing
ingest/      the server to which the fleet's jobs send
reports/     a week's totals as text, JSON, CSV or a page
commands/    `stitchfleet jobs | report | db | ingest`
dashboards/  Prometheus rules and Grafana dashboards for a platform team

Imports run downward: commands; ingest, reports and shipping; totals; database; pod and statistics (a contract in setup.cfg).
"""
