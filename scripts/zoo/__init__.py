"""The zoo: jobs with models that nobody of this project wrote, from packages that anyone can install, by many authors.

    environments.py   the Python environments that they run in
    catalog.py        the models, a row each: package, author, script
    models/           a script for each package, as its users write them; job.py is what they share
    table.py          the results as a table

`scripts/bench --zoo` races them. Weights are random, and data is made up.
"""
