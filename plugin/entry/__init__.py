"""The entry points: what TensorFlow calls of ours.

activation      installs the hooks when TensorFlow is imported (bootstrap/ makes Python call it)
hooks_function  steps of traced functions, and so of Keras
hooks_keras     epochs of Keras' `fit`
hooks_session   steps of v1 sessions
trace_lookup    repeated calls of a tf.function: its trace is found without TensorFlow's lookup
"""
