"""The tables, and what brings records there. SQLAlchemy, Alembic; SQLite and PostgreSQL.

places       where the database and the spool are, if nobody says
errors       DatabaseError, SchemaError
models       the tables; migrations/ brings a database there
access       opens, checks, upgrades; a transaction that writes
partitions   PostgreSQL's days of iterations
weeks        UTC weeks
schema       what a record's JSON may hold
rows         a spool's records to rows
store        inserts them, and notes which frozen weeks have late data
"""
