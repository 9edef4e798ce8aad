"""Whether the admission of labelled pods works, asked as a user's pod would ask. `helm test` runs it.

command.py        stitchfleet check-injection
"""
