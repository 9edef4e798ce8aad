"""What a job measured, from the training process to the weekly report.

In the training process (standard library only):
    recording   who the job is, and the Recorder that its steps are told to
    spool       the files in between: checksummed, bounded, readable after a SIGKILL
    savings     paired blocks of steps to a saving with its interval (pure mathematics; student has the t distribution)

In processes of their own (SQLAlchemy, Alembic):
    shipper     moves sealed spool segments into the database
    rows        spool records to rows
    models      the tables; migrations/ brings a database there, database opens and checks it
    weeks       UTC weeks
    weekly      the rows of a week to what each job and the fleet saved
    fleet       that by groups, with money and the weeks before; configuration names labels, cost centres and prices
    report      that, as text, JSON or CSV; page and charts (matplotlib) as HTML
    command     `stitchfleet jobs | report | db`
"""
