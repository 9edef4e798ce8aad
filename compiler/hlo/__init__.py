"""HLO to graphs.

text, proto  two forms of it to one module; composites: what XLA spells out and is one op; importer: a module to a graph
"""
