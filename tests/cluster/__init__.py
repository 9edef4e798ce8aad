"""A real one-node Kubernetes on this machine, and the tests that run on it.

programs.py   the Go programs that a node is made of, built once and kept
machine.py    what a node changes on the machine, and how that is undone
node.py       starts and stops the node
sharing.py    one node for all workers of a test run
requirements.py   what this machine lacks for it
kubernetes.py   what tests ask of the API server
load.py         many admissions at once, and what stitchfleet's processes take meanwhile
controllers.py  other people's controllers, from their Go modules
"""
