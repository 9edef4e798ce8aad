"""A PTX module to C++ after runtime.h, with mutants of it if wanted: all in one function, and a launch says which one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .instructions import Writer, bits_type, label, write
from .module import Constant, Instruction, Label, Module, instruction

_PATTERN = "0xA7A5A6A3A5A4A6A7ull"
"""What a register holds before it is written, so that it is not right by chance."""


@dataclass(frozen=True)
class Mutant:
    """A change of some instructions: by their numbers among the statements what is there instead; "": nothing."""

    kind: str
    changes: Mapping[int, str]


def translate(module: Module, mutants: Sequence[Mutant] = (), number: int = 0) -> str:
    """The C++ text, launched by the function `launch<number>`: several modules fit one text. Mutant number n of the sequence runs if
    the launch's `mutant` is n + 1. Raises PtxError."""
    writer = Writer(module)
    lines = []
    changes: dict[int, list[tuple[int, str]]] = {}
    for which, mutant in enumerate(mutants, 1):
        for place, text in mutant.changes.items():
            changes.setdefault(place, []).append((which, text))
    for place, one in enumerate(module.statements):
        if isinstance(one, Label):
            writer.labels.add(one.name)
            lines.append(f"{label(one.name)}:;")
            continue
        line = _guarded(writer, one)
        for which, text in changes.get(place, ()):
            changed = _guarded(writer, instruction(text)) if text else "{ }"
            line = f"if (is_mutant({which})) {changed} else {line}"
        lines.append(line)
    texts = ", ".join([*(_quoted(each) for each in writer.sites), '""'])
    constants = ", ".join(f"{{(u64){each.name}, {len(each.data)}, 1, CONSTANT}}" for each in module.constants)
    return "\n".join(
        [
            f"namespace module{number} {{",
            *map(_constant, module.constants),
            "static void kernel(Thread& t, const char* params) {",
            "[[maybe_unused]] bool carry = false;",
            *(
                f"{bits_type(kind)} r_{name[1:]} = ({bits_type(kind)}){0 if kind == 'pred' else _PATTERN};"
                for name, kind in module.registers.items()
            ),
            *_local(module),
            *lines,
            "}",
            f"static const char* const texts[] = {{{texts}}};",
            f'extern "C" __attribute__((visibility("default"))) int launch{number}(const Launch* given) {{',
            f"  return run_grid(*given, kernel, texts, {{{constants}}});",
            "}",
            "}",
            "",
        ]
    )


def _guarded(writer: Writer, one: Instruction) -> str:
    guard = f"if ({writer.value(one.guard, 'pred')}) " if one.guard else ""
    return f"{{ {guard}{{ {write(writer, one)} }} }}"


def _constant(one: Constant) -> str:
    return f"alignas({max(one.align, 16)}) static const u8 {one.name}[] = {{{', '.join(map(str, one.data))}}};"


def _local(module: Module) -> list[str]:
    size = module.local_bytes
    return [f"alignas(16) char locals[{size}];", f"memset(locals, 0xA5, {size});"] if size else []


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
