"""The tables, and how records become rows. SQLAlchemy, Alembic; SQLite and PostgreSQL.

places       default locations of the database and the spools
errors       DatabaseError, SchemaError
models       the tables; migrations/ creates and upgrades them
access       opens, checks, upgrades; transactions that write
partitions   one partition per day of iterations, on PostgreSQL
weeks        UTC weeks
schema       what a record's JSON may hold
rows         from a spool's records to rows
store        inserts rows, and notes which frozen weeks have late data
"""
