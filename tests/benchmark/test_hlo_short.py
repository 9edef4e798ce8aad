"""A module made short says the same, but where its text was made and what a reader knows already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scripts.benchmark.hlo_short import MAX_ELEMENTS, HloFormError, shorten
from stitchfleet.compiler.hlo.module import HloModule
from stitchfleet.compiler.hlo.text import read_hlo_text

LONG = """HloModule step.9, input_output_alias={ {0}: (1, {}, may-alias) }, entry_computation_layout={(f32[2,20]{1,0}, /*index=1*/\
f32[2,20]{0,1})->(f32[2,20]{0,1}, f32[])}

%add.1 (a.2: f32[], b.3: f32[]) -> f32[] {
  %a.2 = f32[] parameter(0)
  %b.3 = f32[] parameter(1)
  ROOT %sum.4 = f32[] add(f32[] %a.2, f32[] %b.3)
}

ENTRY %step.9 (x.5: f32[2,20], y.6: f32[2,20]) -> (f32[2,20], f32[]) {
  %x.5 = f32[2,20]{1,0} parameter(0), sharding={replicated}, metadata={op_name="XLA_Args"}
  %y.6 = f32[2,20]{0,1} parameter(1)
  %table.7 = f32[2,20]{1,0} constant({...}), metadata={source_file="/somewhere/ops.py" source_line=3}
  %pair.8 = (f32[2,20]{0,1}, /*index=1*/f32[]) custom-call(f32[2,20]{1,0} %x.5, f32[2,20]{0,1} %y.6), \
custom_call_target="f(%x)", backend_config="{\\"a\\": 1}"
  %part.9 = f32[2,20]{0,1} get-tuple-element((f32[2,20]{0,1}, /*index=1*/f32[]) %pair.8), index=0
  %zero.10 = f32[] constant(0)
  %total.11 = f32[] reduce(f32[2,20]{1,0} %table.7, f32[] %zero.10), dimensions={0,1}, to_apply=%add.1, \
metadata={op_type="Sum" op_name="a (b) %c" source_file="/somewhere/ops.py" source_line=3}
  ROOT %result.12 = (f32[2,20]{0,1}, f32[]) tuple(f32[2,20]{0,1} %part.9, f32[] %total.11)
}
"""
SHORT = """HloModule step.9, input_output_alias={ {0}: (1, {}, may-alias) }, entry_computation_layout={(f32[2,20], \
f32[2,20]{0,1}, f32[2,20])->(f32[2,20]{0,1}, f32[])}

%add.1 {
  %a.2 = f32[] parameter(0)
  %b.3 = f32[] parameter(1)
  ROOT %sum.4 = f32[] add(%a.2, %b.3)
}

ENTRY %step.9 {
  %x.5 = f32[2,20] parameter(0)
  %y.6 = f32[2,20]{0,1} parameter(1)
  %elided_table.7 = f32[2,20] parameter(2)
  %pair.8 = (f32[2,20]{0,1}, f32[]) custom-call(%x.5, %y.6), custom_call_target="f(%x)"
  %part.9 = f32[2,20]{0,1} get-tuple-element(%pair.8), index=0
  %zero.10 = f32[] constant(0)
  %total.11 = f32[] reduce(%elided_table.7, %zero.10), dimensions={0,1}, to_apply=%add.1, \
metadata={op_type="Sum" op_name="a (b) %c"}
  ROOT %result.12 = (f32[2,20]{0,1}, f32[]) tuple(%part.9, %total.11)
}
"""


def test_a_module_made_short() -> None:
    assert shorten(LONG, {}) == SHORT
    assert shorten(SHORT, {}) == SHORT


def test_what_a_parser_reads_stays() -> None:
    def listing(module: HloModule) -> str:
        return str(replace(module, result_layout=None)).replace("  # XLA_Args", "")

    table = np.linspace(-1e-20, 3, 40, dtype=np.float32).reshape(2, 20)
    short = read_hlo_text(shorten(LONG, {"table.7": table}))
    entry = short.computations[short.entry]
    literal = entry.instructions["table.7"].literal
    assert literal is not None
    np.testing.assert_array_equal(literal, table)
    assert entry.instructions["y.6"].shape.minor_to_major == (0, 1)
    assert short.result_layout is not None
    assert not short.result_layout.is_row_major

    without = {**entry.instructions, "table.7": replace(entry.instructions["table.7"], literal=None)}
    computations = {**short.computations, short.entry: replace(entry, instructions=without)}
    assert listing(replace(short, computations=computations)) == listing(read_hlo_text(LONG, elided_constants=True))


def test_a_constant_too_large_to_be_written_out_becomes_a_parameter() -> None:
    assert shorten(LONG, {"table.7": np.zeros([MAX_ELEMENTS + 1])}) == SHORT


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ROOT %sum.4 = f32[] add", "%c.5 = f32[40] constant({...})\n  ROOT %sum.4 = f32[] add", "outside the entry"),
        ("tuple(f32[2,20]{0,1} %part.9, f32[] %total.11)", "tuple(f32[2,20]{0,1} %part.9", "a closing bracket"),
        ("%zero.10 = f32[] constant(0)", "%zero.10 = f32[]", "a shape and an opcode"),
    ],
)
def test_what_cannot_be_made_short_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(HloFormError, match=message):
        shorten(LONG.replace(old, new), {})
