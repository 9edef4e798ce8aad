"""Checks whether the admission of labelled pods works, as seen by a user's pod. `helm test` runs it.

command.py        stitchfleet check-injection
"""
