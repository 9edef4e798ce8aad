"""In the training process: who the job is, what it measured, and the files in which it waits to be sent. The standard library alone.

environment  the variables by which a pod tells who it is: one table, which the webhook writes from and the job reads from
recording    the Recorder that a job's steps are told to
spool        its files: checksummed, bounded, readable after a SIGKILL
wire         how a batch of them looks on its way to the ingest server
background   a process that steps back behind the training
"""
