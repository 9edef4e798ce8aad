"""All that talks to the Kubernetes API, by the official client.

client.py         how the API is reached
certificates.py   a small certificate authority: pure, on PEM and dates
authority.py      keeps its certificates in a Secret, and tells the API server whom to trust
reports.py        SavingsReport objects
policies.py       StitchPolicy objects
pods.py           pods that ask for stitchfleet
events.py         Kubernetes Events about pods
pauses.py         the ConfigMap that says where injection pauses
nodes.py          for which processors nodes are
"""
