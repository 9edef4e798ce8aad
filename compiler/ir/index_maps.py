"""Integer index arithmetic that simplifies itself: maps a loop's position to an element of a tensor.

A loop variable runs over a *linear* space (all rows, or all elements of a row). A shape's dimensions are the digits of this
variable, written as a number in mixed radix. Propagating an index through broadcast, reshape, transpose and slice splits digits
and joins them again. If they join to the whole variable, the kernel needs no division; if they do not, the planner sees exactly
where the loop must be split. So dimensions coalesce by themselves, and loops are split only where needed.

    Index = constant + sum(coefficient * atom)
    atom  = Digit(variable, stride, extent)   (variable / stride) % extent
          | Quotient(index, divisor)          floor division that no rule could resolve
          | Remainder(index, divisor)

All values are integers; bounds come from extents, so every simplification is exact for in-range variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..support.sequences import zip_strict
from .graph import Shape

if TYPE_CHECKING:
    from typing import TypeAlias


@dataclass(frozen=True)
class Var:
    """A non-negative integer below `extent` that is known when the kernel runs: a loop variable or, if `source` is given, a value
    loaded from an index tensor, such as a gather's start. Such a value is clamped to the range unless the source says otherwise (a
    scatter's indices, which are tested by guards)."""

    name: str
    extent: int
    source: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Digit:
    """`(variable // stride) % extent`. If `stride * extent` reaches the variable's extent (`is_top`), the remainder changes nothing
    and is not computed."""

    variable: Var
    stride: int
    extent: int

    @property
    def is_top(self) -> bool:
        """Whether the digit holds all that is left of the variable, so that no remainder is needed."""
        return self.stride * self.extent >= self.variable.extent

    @property
    def low(self) -> int:
        """The smallest value that it can have."""
        return 0

    @property
    def high(self) -> int:
        """The largest value that it can have."""
        return self.extent - 1


@dataclass(frozen=True)
class Quotient:
    """`floor(index / divisor)`."""

    index: Index
    divisor: int

    @property
    def low(self) -> int:
        """The smallest value that it can have."""
        return self.index.low // self.divisor

    @property
    def high(self) -> int:
        """The largest value that it can have."""
        return self.index.high // self.divisor


@dataclass(frozen=True)
class Remainder:
    """`index mod divisor`, in [0, divisor)."""

    index: Index
    divisor: int

    @property
    def low(self) -> int:
        """The smallest value that it can have."""
        return 0

    @property
    def high(self) -> int:
        """The largest value that it can have."""
        return self.divisor - 1


Atom: TypeAlias = "Digit | Quotient | Remainder"
Term: TypeAlias = "tuple[int, Atom]"


@dataclass(frozen=True)
class Index:
    """`constant + sum(coefficient * atom)` in normal form. Build it with `normal`, `Index.of_var`, arithmetic and `divide`, which
    keep it normal."""

    constant: int
    terms: tuple[Term, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash((self.constant, self.terms))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of_var(cls, variable: Var) -> Index:
        """The variable itself as an index."""
        return normal(0, [(1, Digit(variable, 1, variable.extent))])

    @cached_property
    def low(self) -> int:
        """The least value."""
        return self.constant + sum(c * (a.low if c > 0 else a.high) for c, a in self.terms)

    @cached_property
    def high(self) -> int:
        """The greatest value."""
        return self.constant + sum(c * (a.high if c > 0 else a.low) for c, a in self.terms)

    @property
    def is_constant(self) -> bool:
        """Whether it has no variables."""
        return not self.terms

    @cached_property
    def variables(self) -> frozenset[Var]:
        """All variables in the index, including those inside quotients and remainders."""
        found: set[Var] = set()
        for _, atom in self.terms:
            if isinstance(atom, Digit):
                found.add(atom.variable)
            else:
                found |= atom.index.variables
        return frozenset(found)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms)
        return normal(self.constant + other.constant, [*self.terms, *other.terms])

    def __sub__(self, other: Index) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index(0)
        return Index(self.constant * factor, tuple((c * factor, a) for c, a in self.terms))

    def divide(self, divisor: int) -> tuple[Index, Index]:
        """`(floor(self / divisor), self mod divisor)`, resolved as far as ranges and digits allow. `divisor` is positive."""
        return _divide(self, divisor)

    def substitute(self, values: Mapping[Var, Index]) -> Index:
        """The index with each variable of `values` replaced. A replacement must have the variable's range, [0, extent)."""
        if not (self.variables & values.keys()):
            return self
        result = Index(self.constant)
        for coefficient, atom in self.terms:
            result = result + _substitute_atom(atom, values) * coefficient
        return result

    def digits(self) -> Iterator[Digit]:
        """All digits of the index, including those inside quotients and remainders."""
        for _, atom in self.terms:
            if isinstance(atom, Digit):
                yield atom
            else:
                yield from atom.index.digits()

    def __str__(self) -> str:
        parts = [f"{c}*{_atom_text(a)}" if c != 1 else _atom_text(a) for c, a in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


ZERO = Index(0)


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Digit):
        text = atom.variable.name
        if atom.stride != 1:
            text += f"/{atom.stride}"
        if not atom.is_top:
            text += f"%{atom.extent}"
        return f"({text})" if text != atom.variable.name else text
    sign = "/" if isinstance(atom, Quotient) else "%"
    return f"(({atom.index}){sign}{atom.divisor})"


def _sort_key(term: Term) -> tuple[int, str]:
    return (-term[0], _atom_text(term[1]))


def normal(constant: int, terms: Iterable[Term]) -> Index:
    """`constant + sum of terms` in normal form: equal atoms are added up, adjacent digits of one variable are joined, and terms that
    are always zero are removed."""
    total: dict[Atom, int] = {}
    for coefficient, atom in terms:
        if isinstance(atom, Digit):
            extent = min(atom.extent, -(-atom.variable.extent // atom.stride))
            if extent <= 1:
                continue
            if extent != atom.extent:
                atom = Digit(atom.variable, atom.stride, extent)
        total[atom] = total.get(atom, 0) + coefficient
    total = {atom: coefficient for atom, coefficient in total.items() if coefficient}
    _join_digits(total)
    wholes = [
        a for a in total if isinstance(a, Quotient) and total.get(Remainder(a.index, a.divisor)) == total[a] / a.divisor
    ]
    if wholes:
        return _join_division(constant, total, wholes[0])
    return Index(constant, tuple(sorted(((c, a) for a, c in total.items()), key=_sort_key)))


def _join_digits(total: dict[Atom, int]) -> None:
    """`c*(v/s % e) + c*e*(v/(s*e) % f)` becomes `c*(v/s % (e*f))`, until no pair is left."""
    if sum(isinstance(atom, Digit) for atom in total) < 2:
        return
    joined = True
    while joined:
        joined = False
        starts = {(a.variable, a.stride): a for a in total if isinstance(a, Digit)}
        for lower in list(starts.values()):
            upper = starts.get((lower.variable, lower.stride * lower.extent))
            if upper is None or total[upper] != total[lower] * lower.extent:
                continue
            coefficient = total.pop(lower)
            del total[upper]
            extent = min(lower.extent * upper.extent, -(-lower.variable.extent // lower.stride))
            whole = Digit(lower.variable, lower.stride, extent)
            total[whole] = total.get(whole, 0) + coefficient
            joined = True
            break


def _join_division(constant: int, total: dict[Atom, int], quotient: Quotient) -> Index:
    """`c*d*(i / d) + c*(i mod d)` becomes `c*i`."""
    del total[quotient]
    coefficient = total.pop(Remainder(quotient.index, quotient.divisor))
    return normal(constant, [(c, a) for a, c in total.items()]) + quotient.index * coefficient


def _substitute_atom(atom: Atom, values: Mapping[Var, Index]) -> Index:
    if isinstance(atom, Digit):
        value = values.get(atom.variable)
        if value is None:
            return Index(0, ((1, atom),))
        quotient = value.divide(atom.stride)[0] if atom.stride > 1 else value
        return quotient if atom.is_top else quotient.divide(atom.extent)[1]
    inner = atom.index.substitute(values)
    quotient, remainder = inner.divide(atom.divisor)
    return quotient if isinstance(atom, Quotient) else remainder


def _divide(index: Index, divisor: int) -> tuple[Index, Index]:
    if divisor == 1:
        return index, ZERO
    quotient_constant, rest_constant = divmod(index.constant, divisor)
    whole = [(c // divisor, a) for c, a in index.terms if c % divisor == 0]
    rest = [(c, a) for c, a in index.terms if c % divisor]
    quotient, remainder = _divide_rest(normal(rest_constant, rest), divisor)
    return normal(quotient_constant, whole) + quotient, remainder


def _divide_rest(rest: Index, divisor: int) -> tuple[Index, Index]:
    """Quotient and remainder of an index none of whose coefficients is a multiple of `divisor`."""
    if rest.low >= 0 and rest.high < divisor:
        return ZERO, rest
    by_size = sorted(rest.terms, key=lambda term: abs(term[0]))
    for count in range(len(by_size)):
        # rest = g * big + small with g | divisor and 0 <= small < g: then only `big` is divided, by divisor / g.
        small, big = normal(rest.constant, by_size[:count]), by_size[count:]
        g = math.gcd(divisor, *(c for c, _ in big))
        if g == 1 and (count or rest.constant or len(big) > 1):
            continue
        if not (small.low >= 0 and small.high < g):
            continue
        scaled = normal(0, [(c // g, a) for c, a in big])
        quotient, remainder = _divide_scaled(scaled, divisor // g)
        return quotient, remainder * g + small
    return _opaque(rest, divisor)


def _divide_scaled(scaled: Index, divisor: int) -> tuple[Index, Index]:
    if scaled.low >= 0 and scaled.high < divisor:
        return ZERO, scaled
    if len(scaled.terms) == 1:
        coefficient, atom = scaled.terms[0]
        if coefficient == 1 and isinstance(atom, Digit) and (atom.is_top or atom.extent % divisor == 0):
            quotient = Digit(atom.variable, atom.stride * divisor, -(-atom.extent // divisor))
            remainder = Digit(atom.variable, atom.stride, divisor)
            return normal(0, [(1, quotient)]), normal(0, [(1, remainder)])
    return _opaque(scaled, divisor)


def _opaque(index: Index, divisor: int) -> tuple[Index, Index]:
    return Index(0, ((1, Quotient(index, divisor)),)), Index(0, ((1, Remainder(index, divisor)),))


def linear(index: Sequence[Index], shape: Shape) -> Index:
    """The row-major position of element `index` of a tensor of `shape`, in elements."""
    flat, stride = ZERO, 1
    for position, extent in zip_strict(reversed(index), reversed(shape)):
        flat = flat + position * stride
        stride *= extent
    return flat


def unravel(flat: Index, shape: Shape) -> tuple[Index, ...]:
    """The element of a tensor of `shape` at row-major position `flat`: the inverse of `linear`."""
    positions: list[Index] = []
    for axis, extent in enumerate(reversed(shape)):
        if extent == 1:
            positions.append(ZERO)
            continue
        if axis == len(shape) - 1:
            positions.append(flat)
            break
        flat, position = flat.divide(extent)
        positions.append(position)
    return tuple(reversed(positions))


@dataclass(frozen=True)
class Bound:
    """The condition `low <= index < high` under which an access is made."""

    index: Index
    low: int
    high: int

    @property
    def always(self) -> bool:
        """Whether the condition holds for all values of the variables."""
        return self.index.low >= self.low and self.index.high < self.high

    @property
    def never(self) -> bool:
        """Whether the condition holds for no value of the variables."""
        return self.index.high < self.low or self.index.low >= self.high

    def substitute(self, values: Mapping[Var, Index]) -> Bound:
        """The condition with the variables of `values` replaced; see `Index.substitute`."""
        return Bound(self.index.substitute(values), self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


Guard: TypeAlias = "tuple[Bound, ...]"


def guard_of(bounds: Iterable[Bound]) -> Guard:
    """The conjunction of `bounds`, without the bounds that always hold and without repetitions."""
    return tuple(dict.fromkeys(bound for bound in bounds if not bound.always))


def range_under(index: Index, guard: Guard) -> tuple[int, int]:
    """The smallest and the largest value that `index` can have if `guard` holds, as far as its bounds are bounds of `index` plus a
    constant; the first is above the second if the guard never holds."""
    low, high = index.low, index.high
    for bound in guard:
        apart = index - bound.index
        if apart.is_constant:
            low, high = max(low, bound.low + apart.constant), min(high, bound.high - 1 + apart.constant)
    return low, high
