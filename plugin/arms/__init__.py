"""A job's two arms: its own graph, and the graph with stitch ops beside it.

switch           which arm a step runs in
owner            what the switch and the stitcher need of a program
schedule         pairs of blocks of steps, one of each arm
nested_calls     functions that TensorFlow does not inline
random_streams   seeded operators draw from one stream in both arms
"""
