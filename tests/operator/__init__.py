"""The Kubernetes side without a cluster: what is done to pods, certificates, the webhook's server, reports as objects."""
