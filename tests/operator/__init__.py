"""The Kubernetes side without a cluster, in a folder for each folder of operator/. pods: the pods that all of them use."""
