"""Rows of a nest, a block of them at once.

With matrix products, so that a product's right factor is loaded once for all rows of the block:

    for r in [first_row, last_row):          for rows in blocks of R rows:
      A                                         for r in the block: A          with a slot for each row in each local that B reads
      product row[n] = ...                      product of all rows of the block
      B                                         for r in the block: B

And where a row begins with a number that is expensive, so that the numbers of all rows of the block are computed as vectors:

    for r in [first_row, last_row):          for rows in blocks of R rows:
      t = tanh(x[r])                            for r in the block, simd: numbers[r - group_first] = tanh(x[r])
      for k: sums[k] += t * y[r, k]             for r in the block: for k: sums[k] += numbers[r - group_first] * y[r, k]

And where a row is short and has several sums, so that the next row's pass runs while a pass's sum is folded:

    for r in [first_row, last_row):          for rows in blocks of R rows:
      for k: most = max(most, x[r, k])          for r in the block: for k: ...; most_of_rows[r - group_first] = most
      for k: total += exp(x[r, k] - most)       for r in the block: for k: total += exp(x[r, k] - most_of_rows[r - group_first])

This is loop distribution followed by unroll-and-jam of the product (Allen and Kennedy, Optimizing Compilers for Modern
Architectures, 2001, sections 5.2 and 8.5). It is legal because rows are independent, but for accumulators of the task: each of these
is changed by one part of the body only, and still row after row. What a later part reads of an earlier one is kept: an array has a
slot for each row of the block, and a number becomes such an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ..ir.graph import DType
from ..ir.index_maps import Index, Var
from ..loops import loops
from ..loops.loops import (
    Assign,
    Blocks,
    Collapse,
    Combine,
    Let,
    LetIndex,
    LoadLocal,
    Local,
    Loop,
    LoopKind,
    NestCode,
    Product,
    Scan,
    Statement,
    Store,
)
from ..loops.uses import uses

NAME: Final = "group"
"""A block's first and last row are `group_first` and `group_last`."""


def products_of_rows(code: NestCode, rows: int) -> NestCode:
    """The nest with blocks of `rows` rows, whose matrix products are computed for all rows of a block at once."""
    place, loop = loop_over_rows(code)
    return _in_blocks(code, place, _Block(loop, rows, list(_around_products(loop.body))))


def numbers_of_rows(code: NestCode, rows: int) -> NestCode:
    """The nest with blocks of `rows` rows. What a row computes of no result of a loop over the row is computed first, for all rows of
    a block as vectors."""
    place, loop = loop_over_rows(code)
    return _in_blocks(code, place, _Block(loop, rows, list(_numbers_and_rest(loop.body)), LoopKind.SIMD))


def passes_of_rows(code: NestCode, rows: int) -> NestCode:
    """The nest with blocks of `rows` rows, of which each pass is done before the next one begins."""
    place, loop = loop_over_rows(code)
    return _in_blocks(code, place, _Block(loop, rows, list(_passes(loop.body))))


def loop_over_rows(code: NestCode) -> tuple[int, Loop]:
    """The loop over a task's rows, and its place in the body."""
    ((place, loop),) = (
        (place, each)
        for place, each in enumerate(code.body)
        if isinstance(each, Loop) and each.bounds == ("first_row", "last_row")
    )
    return place, loop


def _in_blocks(code: NestCode, place: int, block: _Block) -> NestCode:
    body = Blocks(block.rows, tuple(block.statements()), NAME)
    return replace(code, body=(*code.body[:place], body, *code.body[place + 1 :]))


class _Block:
    """The body of a loop over blocks of `rows` rows, made from the loop over rows. parts: the statements of its body, in the parts
    that run one after the other. first: how the rows run in the first part."""

    def __init__(self, loop: Loop, rows: int, parts: list[list[Statement]], first: LoopKind = LoopKind.SERIAL) -> None:
        self._loop, self.rows, self._parts, self._first = loop, rows, parts, first
        self._locals = {each.name: each for each in loop.body if isinstance(each, Local)}
        self._defined = {name: dtype for each in loop.body for name, dtype in _defines(each)}
        self._indices = {each.variable: each for each in loop.body if isinstance(each, LetIndex)}
        self._slot = Index.of_var(loop.variable) - Index.of_var(Var(f"{NAME}_first", loop.variable.extent))
        part_of = {
            name: number for number, part in enumerate(self._parts) for each in part for name, _ in _defines(each)
        }
        reads = [self._reads_of(part) for part in self._parts]
        self._kept = sorted(name for name, made in part_of.items() if any(name in names for names in reads[made + 1 :]))
        self._shared = sorted(
            name for name in self._locals if sum(name in names for names in reads) > 1 or self._is_of_product(name)
        )

    def _is_of_product(self, local: str) -> bool:
        return any(isinstance(each, Product) and local in uses(each)[0] for each in self._loop.body)

    def _reads_of(self, part: Sequence[Statement]) -> set[str]:
        """The names and locals that a part reads, those of the positions that it needs among them."""
        names: set[str] = set()
        for each in part:
            found, variables = uses(each)
            names |= found
            names |= {self._indices[variable].value for variable in variables if variable in self._indices}
        return names

    def statements(self) -> Iterator[Statement]:
        """The statements of a block."""
        for name in self._shared:
            local = self._locals[name]
            yield replace(local, size=local.size * self.rows)
        for name in self._kept:
            yield Local(_kept_in(name), self._defined[name], self.rows, None)
        for number, part in enumerate(self._parts):
            (first, *_) = part
            if isinstance(first, Product):
                yield self._product(first)
                continue
            yield Loop(
                self._loop.variable,
                self._loop.variable.extent,
                self._first if number == 0 else LoopKind.SERIAL,
                tuple(self._part(part)),
                bounds=(f"{NAME}_first", f"{NAME}_last"),
            )

    def _part(self, part: Sequence[Statement]) -> Iterator[Statement]:
        made = {name for each in part for name, _ in _defines(each)}
        here = {each.variable for each in part if isinstance(each, LetIndex)}
        reads = self._reads_of(part)
        yield from (self._locals[name] for name in sorted(reads & self._locals.keys()) if name not in self._shared)
        for name in sorted(reads & set(self._kept) - made):
            yield Let(name, self._defined[name], LoadLocal(_kept_in(name), self._slot))
        wanted = {variable for each in part for variable in uses(each)[1] if variable in self._indices} - here
        for variable in sorted(wanted, key=lambda variable: variable.name):
            yield self._indices[variable]
        for each in part:
            if not isinstance(each, Local):
                yield self._with_slots(each)
            for name, _ in _defines(each):
                if name in self._kept:
                    yield Assign(_kept_in(name), self._slot, name)

    def _product(self, product: Product) -> Product:
        target = self._locals[product.local]
        left = tuple(self._with_slots(each) for each in product.left)
        return replace(product, left=left, row=self._loop.variable, stride=target.size)

    def _with_slots(self, statement: Statement) -> Statement:
        """The statement with the row's slot in the shared locals."""

        def moved(local: str, index: Index) -> Index:
            return index + self._slot * self._locals[local].size if local in self._shared else index

        if isinstance(statement, (Loop, loops.If)):
            return replace(statement, body=tuple(self._with_slots(each) for each in statement.body))
        if isinstance(statement, Let) and isinstance(statement.value, LoadLocal):
            value = statement.value
            return replace(statement, value=replace(value, index=moved(value.local, value.index)))
        if isinstance(statement, (Assign, Scan)):
            return replace(statement, index=moved(statement.local, statement.index))
        if isinstance(statement, Combine):
            if statement.index is not None:
                return replace(statement, index=moved(statement.local, statement.index))
            assert statement.local not in self._shared, "lanes are of one part"
        if isinstance(statement, Product):
            assert statement.local not in self._shared, "a product that is repeated in a row has a local of its own"
        return statement


def _kept_in(name: str) -> str:
    return f"{name}_of_rows"


def _numbers_and_rest(body: Sequence[Statement]) -> Iterator[list[Statement]]:
    """The statements of a row's body that no loop and no local of the row has to precede, and all others."""
    first: list[Statement] = []
    rest: list[Statement] = []
    late: set[str] = set()  # names of values and locals that belong to the rest
    is_before = True
    for each in body:
        names, variables = uses(each)
        names |= {variable.name for variable in variables}
        is_number = isinstance(each, (Let, LetIndex)) or (is_before and isinstance(each, Store))
        if is_number and not names & late:
            first.append(each)
            continue
        rest.append(each)
        is_before &= isinstance(each, Local)
        late |= {each.variable.name} if isinstance(each, LetIndex) else {name for name, _ in _defines(each)}
        late |= {each.name} if isinstance(each, Local) else set()
    return (part for part in (first, rest) if part)


def _passes(body: Sequence[Statement]) -> Iterator[list[Statement]]:
    """The statements of a row's body in parts that end with a loop over the row and what is made of its lanes. A loop may have the
    lanes of several sums, and a number of 16 bits is rounded between two of them."""
    lanes = {each.local for each in body if isinstance(each, Collapse)}
    part: list[Statement] = []
    has_loop = False
    waiting: set[str] = set()  # lanes of the part that are not combined yet
    for each in body:
        if has_loop and not waiting and not isinstance(each, (Collapse, Combine, Store)):
            yield part
            part, has_loop = [], False
        has_loop |= isinstance(each, Loop)
        if isinstance(each, Local):
            waiting |= {each.name} & lanes
        elif isinstance(each, Collapse):
            waiting.discard(each.local)
        part.append(each)
    if part:
        yield part


def _around_products(body: Iterable[Statement]) -> Iterator[list[Statement]]:
    """The statements between products, and each product alone."""
    part: list[Statement] = []
    for each in body:
        if isinstance(each, Product):
            if part:
                yield part
            yield [each]
            part = []
        else:
            part.append(each)
    if part:
        yield part


def _defines(statement: Statement) -> Iterator[tuple[str, DType]]:
    """The names that a statement of a row's body gives to numbers of the row."""
    if isinstance(statement, (Let, Collapse, Scan)):
        yield statement.name, statement.dtype
