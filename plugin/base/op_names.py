"""Names of TensorFlow's operators on variables, for which several rooms look."""

from __future__ import annotations

READ_VARIABLE = "ReadVariableOp"
RESOURCE_GATHER = "ResourceGather"
"""Reads some rows of a variable."""
REFERENCE_VARIABLES = ("VariableV2", "Variable")
"""Variables of TensorFlow 1, whose readers read the value itself, by an Identity."""
VARIABLES = ("VarHandleOp", *REFERENCE_VARIABLES)
