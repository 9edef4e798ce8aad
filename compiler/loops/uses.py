"""What statements and values read."""

from __future__ import annotations

from ..ir.index_maps import Guard, Var
from . import loops
from .loops import Statement


def read_value(value: loops.Value, names: set[str], variables: set[Var]) -> None:
    """Adds the names (of values and of locals) and the variables that a value is computed from."""
    if isinstance(value, (loops.Load, loops.LoadLocal)):
        variables |= value.index.variables
        read_guard(value.guard, variables)
        if isinstance(value, loops.LoadLocal):
            names.add(value.local)
    elif isinstance(value, loops.FromIndex):
        variables |= value.index.variables
    elif isinstance(value, loops.Compute):
        names |= set(value.operands)
    elif isinstance(value, (loops.Merge, loops.Either)):
        names |= {value.left, value.right}
    elif isinstance(value, loops.Convert):
        names.add(value.value)
    elif isinstance(value, loops.Masked):
        names |= {value.value, value.keep}
    elif isinstance(value, loops.Choose):
        names |= {name for _, name in value.cases} | {value.otherwise}
        for guard, _ in value.cases:
            read_guard(guard, variables)


def read_guard(guard: Guard, variables: set[Var]) -> None:
    """Adds the variables that a guard depends on."""
    for bound in guard:
        variables |= bound.index.variables


def uses(statement: Statement) -> tuple[set[str], set[Var]]:
    """The names (of values and of locals) and the variables that a statement and its body use. A local that it writes counts as
    used. Statements that only a GPU's loops have are not looked into."""
    names: set[str] = set()
    variables: set[Var] = set()
    for each in loops.walk([statement]):
        if isinstance(each, loops.Let):
            read_value(each.value, names, variables)
        elif isinstance(each, loops.LetIndex):
            names.add(each.value)
        elif isinstance(each, (loops.Store, loops.Update)):
            names.add(each.value)
            variables |= each.index.variables
        elif isinstance(each, (loops.Assign, loops.Combine, loops.Scan)):
            names |= {each.local, each.value}
            variables |= each.index.variables if each.index is not None else frozenset()
        elif isinstance(each, loops.Collapse):
            names.add(each.local)
        elif isinstance(each, loops.Fold):
            names |= set(each.locals)
        elif isinstance(each, loops.If):
            read_guard(each.guard, variables)
        elif isinstance(each, loops.Turn):
            names.add(each.local)
            variables |= each.place.variables | each.index.variables
        elif isinstance(each, loops.TurnBack):
            names.add(each.local)
            variables |= each.index.variables
        elif isinstance(each, loops.Product):
            names |= {each.local, each.factor}
            variables |= each.offset.variables | each.right.index.variables
    return names, variables
