"""`stitchfleet webhook`: the API server asks it about each pod that is created with the label.

server.py    the HTTP side: an admission review in, one out; whatever goes wrong, the pod is admitted as it is
policies.py  the namespaces' policies, in memory
metrics.py   what it counts
serving.py   TLS with certificates that change while it serves
command.py   the command
"""
