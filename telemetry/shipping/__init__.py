"""The process beside a training process that sends its records.

shipper      moves sealed spool segments into the database, or to the ingest server
sender       posts segments to the server (standard library only)
leftovers    drops what could not be sent for too long, if its writer is dead
"""
