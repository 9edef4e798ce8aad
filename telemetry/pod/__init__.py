"""In the training process: who the job is, what it measured, and the files in which records wait to be sent. Standard library only.

environment  the variables that identify a pod's job: one table, from which the webhook writes and the job reads
recording    the Recorder, which a job calls at each step
spool        the files of records: checksummed, bounded, readable after a SIGKILL
folders      the folder that is used if no setting names another
wire         the format in which a batch of segments is sent to the ingest server
background   lowers a helper process's priority below the training
garbage      Python's collector of cyclic garbage off for a while
"""
