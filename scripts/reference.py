"""Generates the reference pages in `docs/` from their sources: the chart's values, the fields of its resources, the folders. And
the tables of races in README.md and docs/results.md, between two lines of which the first names the file of results:

    <!-- table of all-2026-11-29-amd-avx512-2-cores.json.gz -->
    <!-- end of table -->

    scripts/reference.py            writes docs/values.md, resources.md, rooms.md, versions.md, zoo.md and peers.md, and those tables
    scripts/reference.py --check    checks whether they are up to date; exit code 1 if not

A value's description is the comment above or after it in values.yaml; its type comes from values.schema.json.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stitchfleet.plugin.versions.known import TESTED

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.benchmark import markdown  # noqa: E402
from scripts.benchmark.peers import CHECKED_STEPS  # noqa: E402
from scripts.peers import catalog as peers  # noqa: E402
from scripts.peers.table import table as peers_table  # noqa: E402
from scripts.zoo import table as zoo  # noqa: E402
from scripts.zoo.catalog import MODELS  # noqa: E402

CHART = ROOT / "helm" / "stitchfleet"
RESULTS = ROOT / "scripts" / "benchmark" / "results"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):(?P<rest>.*)$")


def values_page() -> str:
    """The text of docs/values.md."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    texts = comments((CHART / "values.yaml").read_text(encoding="utf-8"))
    lines = [
        "# The chart's values",
        "",
        "Made by `scripts/reference.py` from `helm/stitchfleet/values.yaml` and its schema, which refuses everything else.",
        "",
        "| value | default | type | |",
        "|---|---|---|---|",
    ]
    for path, value in leaves(defaults, schema):
        text = texts.get(path, "")
        lines.append(
            f"| `{'.'.join(path)}` | `{json.dumps(value)}` | {kind(node_of(schema, path), schema)} | {cell(text)} |"
        )
    return "\n".join(lines) + "\n"


def comments(text: str) -> dict[tuple[str, ...], str]:
    """Path of each key in the YAML text `text` -> the comment above it and the one after it on its line, joined."""
    found: dict[tuple[str, ...], str] = {}
    path: list[tuple[int, str]] = []
    above: list[str] = []
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("#"):
            above.append(line.lstrip(" #"))
            continue
        if key is not None:
            path = [step for step in path if step[0] < len(key["indent"])] + [(len(key["indent"]), key["key"])]
            behind = re.search(r"(?:^|\s)# (.*)$", key["rest"])
            if said := " ".join([*above, *([behind[1]] if behind else [])]):
                found[tuple(step for _, step in path)] = said
        above = []
    return found


def leaves(value: Any, schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of every value that is set as a whole; an object whose fields the schema does not name is one value."""
    named = node_of(schema, path).get("properties") if path else schema["properties"]
    if isinstance(value, dict) and value and named:
        for key, inner in value.items():
            yield from leaves(inner, schema, (*path, key))
    else:
        yield path, value


def node_of(schema: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """The part of a JSON schema for the value at `path`, with references resolved; {} if the schema does not name it."""
    node: Mapping[str, Any] = schema
    for key in path:
        node = node.get("properties", {}).get(key, {})
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
    return node


def kind(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A value's type in words: its enumeration, or the type's name with its range."""
    if "enum" in node:
        return ", ".join(f"`{each}`" for each in node["enum"])
    name = str(node.get("type", "any"))
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None or high is not None:
        name += (
            f", {low} to {high}"
            if low is not None and high is not None
            else f", at least {low}"
            if high is None
            else ""
        )
    return name


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def resources_page() -> str:
    """The text of docs/resources.md."""
    lines = [
        "# StitchPolicy and SavingsReport",
        "",
        "Made by `scripts/reference.py` from the definitions in `helm/stitchfleet/crds`, by which the API server checks objects;",
        "`kubectl explain stitchpolicy.spec` says the same.",
    ]
    for file in sorted((CHART / "crds").glob("*.yaml"), reverse=True):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        (version,) = definition["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        scope = "in a namespace" if definition["scope"] == "Namespaced" else "of the whole cluster"
        lines += [
            "",
            f"## {definition['names']['kind']}",
            "",
            f"`{definition['group']}/{version['name']}`, {scope}. {schema['description']}",
            "",
            "| field | type | |",
            "|---|---|---|",
        ]
        lines += [f"| `{path}` | {kind} | {cell(text)} |" for path, kind, text in fields(schema)]
    return "\n".join(lines) + "\n"


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, type, description) of every field below a schema. The fields of conditions, which have the standard shape, are left
    out."""
    for key, node in schema.get("properties", {}).items():
        here = f"{path}.{key}" if path else key
        is_list = node.get("type") == "array"
        inner = node["items"] if is_list else node
        name = kind(inner, {})
        if "default" in node:
            name += f"; default `{json.dumps(node['default'])}`"
        if not inner.get("properties") or node.get("description"):
            yield here + ("[]" if is_list else ""), name, node.get("description", "")
        if key != "conditions":
            yield from fields(inner, here + ("[]" if is_list else ""))


PACKAGES = ("compiler", "plugin", "telemetry", "operator")


def rooms_page() -> str:
    """The text of docs/rooms.md."""
    lines = [
        "# The rooms",
        "",
        "Made by `scripts/reference.py` from the folders' `__init__.py`. Which may import which: `setup.cfg`.",
    ]
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("__init__.py")):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            lines += [
                "",
                f"## {file.parent.relative_to(ROOT)}/",
                "",
                *(f"    {line}".rstrip() for line in text.splitlines()),
            ]
    return "\n".join(lines) + "\n"


VERSIONS_TEXT = """\
# Versions of TensorFlow, Keras and Python

Stitchfleet takes TensorFlow {tested} with the Keras that each has (and `tf_keras`), on Python 3.9 and later, NumPy 1 and 2. The op
is compiled for one version of TensorFlow: `stitchfleet run` does that once and keeps it, and a pod's payload brings those of the
table below.

On any other version (a nightly, a release candidate, a vendor's build, one that came later) `stitchfleet run` compiles the op
too, and tries it once on a small job in processes of its own: whether its steps are seen, its graphs offered, kernels verified
and run, and whether its numbers are plain TensorFlow's. If so, jobs are stitched; if not, they run plain, with one line that says
what failed. `stitchfleet doctor` says which it is, and the self-test's verdict.

What differs between versions is in one room, `plugin/versions/`, and in C++ in `plugin/native/versions/`.

## What was run where

Made by `scripts/reference.py` from [what the tests wrote](../scripts/benchmark/results/{file}) ({day}, `STITCHFLEET_VERSIONS=FILE
scripts/test --all versions`). Each job trains until it is stitched, is then fed a number that its kernels compute wrongly on
purpose, and goes on until the guard has reverted that kernel; its records come to a database; and its loss just before is that of
a plain run of as many steps. In each field: seconds from the start to stitched, everything compiled anew and two such jobs at
once on two cores; clusters; relative difference of the loss, after so many steps. TensorFlow 2.15.1 on Python 3.11 is the one
that all other tests run on.
"""


def versions_page() -> str:
    """The text of docs/versions.md."""
    file = max(RESULTS.glob("versions-*.json"))
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    day = re.search(r"\d{4}-\d\d-\d\d", file.name)
    ways = {"function": "`tf.function`", "fit": "Keras `fit`", "session": "v1 session"}
    lines = [
        VERSIONS_TEXT.format(tested=TESTED, file=file.name, day=day[0] if day else ""),
        f"| TensorFlow, Python | Keras | {' | '.join(ways.values())} |",
        f"|---|---|{'---|' * len(ways)}",
    ]
    for environment in sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)]):
        seen = found[environment]
        version, _, rest = environment.partition("-py")
        keras = next((figures["keras"] for figures in seen.values()), "")
        cells = [_seen(seen[way]) if way in seen else "did not pass" for way in ways]
        lines.append(f"| {version}, {rest.removesuffix('-legacy-keras')} | {keras} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


ZOO_TEXT = """# Models that nobody here wrote

Made by `scripts/reference.py` from {files}, the results of `scripts/bench --zoo NAMES --json FILE` ({when}; {machine}). Each job
runs a model of a public package as its author wrote it, with random weights and data that the script makes, plain, compiled by
XLA (`jit_compile=True`) and under a whole `stitchfleet run`, interleaved. `scripts/bench --zoo=list` names all jobs; {missing}.

{summary}

In brackets: the package, its author, and the version of TensorFlow (2.15.1 with Keras 2, 2.21.0 with Keras 3).
"over": ratios by wall time, above 1 if stitched is faster, with the 95% interval of the rounds' paired ratios.
"""


ZOO_BELOW = """## Below {least} over the better of plain and XLA

By the profile of a step ([the same files](../scripts/benchmark/results/)), in milliseconds summed over threads, so that two operators
at once count twice. "The most that stitching could gain": over plain, if all that is no product took no time. What was tried on some
of them: [the worst, taken apart](worst.md).
"""


def zoo_page() -> str:
    """The text of docs/zoo.md."""
    files = sorted(RESULTS.glob("zoo-*.json.gz"), key=lambda path: int(path.name.split("-")[1]))
    documents = [json.loads(gzip.decompress(file.read_bytes())) for file in files]
    whole = zoo.merged(documents)
    left = len(MODELS.keys() - whole["workloads"].keys())
    cpus = {f"{each['machine']['cpu']}, {each['machine']['cores']} cores" for each in documents}
    text = ZOO_TEXT.format(
        files=", ".join(f"[{file.name}](../scripts/benchmark/results/{file.name})" for file in files),
        when=", ".join(sorted({str(each["when"])[:10] for each in documents})),
        machine="; ".join(sorted(cpus)),
        missing=f"{left} of the {len(MODELS)} were not measured yet" if left else f"all {len(MODELS)} were measured",
        summary="\n".join(zoo.summary(whole)),
    )
    worst = ["", ZOO_BELOW.format(least=zoo.LEAST), *zoo.below(whole)]
    return "\n".join([text, *zoo.table(whole), *worst]) + "\n"


PEERS_TEXT = """# Beside the compilers of other frameworks

Made by `scripts/reference.py` from [{file}](../scripts/benchmark/results/{file}), the results of `scripts/bench --peers --json FILE`
({when}; {machine}; {versions}). Each model is one of our workloads, on the newest TensorFlow with Keras 3, and the same
mathematics in JAX and in PyTorch, as their users write it ([scripts/peers/models](../scripts/peers/models)): `jax.jit` around the
whole step with donated state; `torch.compile` around the loss, and PyTorch's fused optimizers. All start from the weights and batches
that the TensorFlow script makes. Before the race each computes {steps} steps without dropout, and its losses are plain TensorFlow's
to 1e-3 (of those here, to {difference}).

In each field: the median step, and its ratio to stitched's (above 1: stitched is faster) with the 95% interval of the rounds' paired
ratios.
"""
PEERS_NOTES = """
## What is compared, and what cannot be

- A stitched job is the user's own script, unchanged. Those of JAX and PyTorch are other programs: nobody's TensorFlow job becomes one
  without being written anew.
- Dropout: TensorFlow draws each mask by an operator of its own, JAX by XLA's generator ("rbg": its default, threefry, is slower on a
  CPU), PyTorch inside of its kernels. The masks differ, what is computed with them does not.
- TensorFlow's contestants read their batches from `tf.data`, the others from memory.
- PyTorch has no padding that differs between two sides in a convolution, as Keras' "same" has with stride 2: the ResNet pads before
  it.
- `max-autotune` is PyTorch's with the C++ wrapper; its frozen weights, and weights packed for them, are for inference alone.
- Models with loops whose length the data decides (DIEN, ASR, decoding word by word) and with lengths that change have no
  form here that would be the same program. Single precision only.
"""


def peers_page() -> str:
    """The text of docs/peers.md."""
    file = max(RESULTS.glob("peers-*.json"), key=lambda path: path.name)
    found = json.loads(file.read_text(encoding="utf-8"))
    differences = [
        each["difference_of_first_losses"] or 0.0
        for results in found["models"].values()
        for each in results
        if each["figures"]
    ]
    text = PEERS_TEXT.format(
        file=file.name,
        when=str(found["when"])[:10],
        machine=f"{found['machine']['cpu']}, {found['machine']['cores']} cores",
        versions=", ".join(f"{name} {found['versions'][name]}" for name in peers.PACKAGES),
        steps=CHECKED_STEPS,
        difference=f"{max(differences):.0e}",
    )
    return "\n".join([text, *peers_table(found)]) + "\n" + PEERS_NOTES


_TABLE = re.compile(r"(<!-- table of (?P<file>\S+) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)


def with_tables(page: str) -> str:
    """The text of `page` with its tables of races written anew from their files."""

    def written(found: re.Match[str]) -> str:
        document = json.loads(gzip.decompress((RESULTS / found["file"]).read_bytes()))
        return "".join([found[1], *(f"{line}\n" for line in markdown.table(document)), found[3]])

    return _TABLE.sub(written, page)


def _seen(figures: Mapping[str, Any]) -> str:
    difference = abs(figures["loss"] - figures["plain_loss"]) / max(abs(figures["plain_loss"]), 1e-30)
    return f"{figures['stitched_after_s']:.0f} s, {figures['clusters']}, {difference:.0e} after {figures['steps']}"


PAGES: dict[str, Callable[[], str]] = {
    "docs/values.md": values_page,
    "docs/resources.md": resources_page,
    "docs/rooms.md": rooms_page,
    **({"docs/versions.md": versions_page} if any(RESULTS.glob("versions-*.json")) else {}),
    "docs/zoo.md": zoo_page,
    **({"docs/peers.md": peers_page} if any(RESULTS.glob("peers-*.json")) else {}),
    "README.md": lambda: with_tables(_read("README.md")),
    "docs/results.md": lambda: with_tables(_read("docs/results.md")),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    arguments = parser.parse_args()
    stale = [name for name, make in PAGES.items() if _read(name) != make()]
    if arguments.check:
        for name in stale:
            print(f"{name} is out of date; scripts/reference.py writes it anew", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
        print(name)
    return 0


def _read(name: str) -> str:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
