"""`stitchfleet webhook`: the API server calls it for each pod that is created with the label.

server.py    the HTTP side: one admission review in, one out; if anything fails, the pod is admitted unchanged
policies.py  the namespaces' policies and the nodes' processors, in memory
selftest.py  tests whether this cluster runs the program that starts commands
metrics.py   Prometheus metrics
serving.py   TLS with certificates that change while the server runs
command.py   the command
"""
