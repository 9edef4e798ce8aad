"""The peers: compilers of other frameworks on the same models as ours, from the same weights, with the same batches.

    catalog.py     the models and the contestants, a row each, and the environments that they run in
    export.py      runs with TensorFlow: writes a model's weights and batches, which all others start from
    models/        each model in JAX and in PyTorch, as their users write it; start.py is what they share
    table.py       the results as a table

`scripts/bench --peers` checks that all compute the same losses, then races them in one run.
"""
