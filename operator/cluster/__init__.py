"""Everything that talks to the Kubernetes API, through the official client.

client.py         connects to the API
certificates.py   a small certificate authority: pure, on PEM and dates
authority.py      keeps its certificates in a Secret, and tells the API server which authority to trust
reports.py        SavingsReport objects
policies.py       StitchPolicy objects
pods.py           pods that ask for stitchfleet
events.py         Kubernetes Events about pods
pauses.py         the ConfigMap that says where injection pauses
nodes.py          the processors of nodes
"""
