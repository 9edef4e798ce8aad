"""HLO to graphs.

text, proto  read the two forms of HLO into one module; composites, convolutions, selections: written out in
primitives; importer: module to graph; small_products: which matrix products are compiled
"""
