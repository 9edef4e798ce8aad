"""What a job measured, from the training process to the weekly report.

In the training process (standard library only):
    recording   who the job is, and the Recorder that its steps are told to
    spool       the files in between: checksummed, bounded, readable after a SIGKILL
    savings     paired blocks of steps to a saving with its interval (pure mathematics; student has the t distribution)

In a process beside it, the shipper:
    shipper     moves sealed spool segments into the database, or to the ingest server (standard library only)
    sender      posts them; wire says how a batch looks
    leftovers   what nobody could send for too long, where the writer is dead

In processes of their own (SQLAlchemy, Alembic; aiohttp and prometheus-client for the server):
    rows        spool records to rows; store inserts them
    models      the tables; migrations/ brings a database there, database opens and checks it, partitions keeps PostgreSQL's days
    ingest      the fleet's server: authentication says who sends, receiving what becomes of a batch, metrics what Prometheus sees,
                openapi how it is spoken to; command_ingest is `stitchfleet ingest`
    weeks       UTC weeks
    weekly      the rows of a week to what each job and the fleet saved
    fleet       that by groups, with money and the weeks before; configuration names labels, cost centres and prices
    report      that, as text, JSON or CSV; page and charts (matplotlib) as HTML
    command     `stitchfleet jobs | report | db`
    dashboards/ Prometheus rules and Grafana dashboards for a platform team
"""
