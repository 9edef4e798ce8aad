"""`stitchfleet webhook`: the API server asks it about each pod that is created with the label.

server.py    the HTTP side: an admission review in, one out; whatever goes wrong, the pod is admitted as it is
policies.py  the namespaces' policies and the nodes' processors, in memory
selftest.py  whether this cluster runs the program that starts commands
metrics.py   what it counts
serving.py   TLS with certificates that change while it serves
command.py   the command
"""
