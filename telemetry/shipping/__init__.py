"""The process beside a training process that brings its records on.

shipper      moves sealed spool segments into the database, or to the ingest server
sender       posts them (standard library only)
leftovers    what nobody could send for too long, if its writer is dead
"""
