"""A job's two arms: its own graph, and the graph with stitch ops beside it.

switch           which arm a step runs in
owner            the part of a program that the switch and the stitcher use
schedule         pairs of blocks of steps, one of each arm
passes           how often TensorFlow optimizes a graph before it is rewritten
nested_calls     functions that TensorFlow does not inline
random_streams   makes seeded operators draw from one stream in both arms
"""
