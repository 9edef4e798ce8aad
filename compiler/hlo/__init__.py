"""HLO to graphs.

text, proto  read the two forms of HLO into one module; composites: ops that are written out in primitives; importer: module to graph
"""
