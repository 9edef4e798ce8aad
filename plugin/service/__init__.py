"""The compile service: a separate process that makes and checks kernels.

client    the trainer's side; serving: the service's process; messages: the messages between them
framework a cluster's function as TensorFlow's own operators compute it
bundle    a failed comparison as files, and the oracle's verdict on it
"""
