"""The emulated library of a cubin of a kernel cache's: `emulated_driver_builder.py FOLDER IMAGE` prints its path.

A cache below the folder has the source beside the image. Called by the tests' driver (emulated_driver.h) for each image.
TEST_GPU_BREAK breaks every kernel: "wrong", the first element of its first output is off by one; "unwritten", it is not written;
"beside", the byte behind the output is.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

from stitchfleet.compiler.kernel.metadata import KernelMetadata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.compiler.cuda_emulator import build

RUN = 'extern "C" __attribute__((visibility("default"))) '
LAUNCH = (
    "int run_{name}(void** p, const emulator::Launch* launch) {{ "
    "{before} const int faults = emulator::launch(*launch, [&] {{ {call}; }}); {after} return faults; }}"
)
BROKEN = {
    "": ("", ""),
    "wrong": ("", "*(float*)first += 1.0f;"),
    "unwritten": ("const float before = *(float*)first;", "*(float*)first = before;"),
    "beside": ("", "first[{bytes}] = 1;"),
}
"""What runs before and after a kernel. first: the address of its first output, of so many bytes."""
COMPARISON = {
    "stitch_largest": "stitch_largest(*(void**)p[0], *(long long*)p[1], *(int*)p[2], *(StitchCompared**)p[3])",
    "stitch_compare": "stitch_compare(*(void**)p[0], *(void**)p[1], *(long long*)p[2], *(int*)p[3], *(double*)p[4], *(double*)p[5], "
    "*(StitchCompared**)p[6])",
}


def main() -> None:
    folder, image = map(pathlib.Path, sys.argv[1:])
    entry = find_entry(folder, image.read_bytes())
    metadata = KernelMetadata.from_json(json.dumps(json.loads((entry / "entry.json").read_text())["metadata"]))
    print(build((entry / "kernel.cu").read_text(), trampolines(metadata), folder=entry).library._name)


def find_entry(folder: pathlib.Path, image: bytes) -> pathlib.Path:
    for path in folder.rglob("kernel.cubin"):
        if path.with_name("entry.json").exists() and path.read_bytes().startswith(image):
            return path.parent
    raise SystemExit(f"no kernel below {folder} has this image")


def trampolines(metadata: KernelMetadata) -> str:
    """The functions by which the driver launches a kernel and the comparison behind it, and what it has to know of the tensors."""
    launch, symbol = metadata.launch, metadata.symbol
    assert launch is not None
    sizes = {("scratch", 0): metadata.scratch_bytes}
    sizes |= {("input", number): one.size_bytes for number, one in enumerate(metadata.inputs)}
    sizes |= {("output", number): one.size_bytes for number, one in enumerate(metadata.outputs)}
    tensors = launch.tensors
    held = "*(void***)p[0]" if launch.by_table else "(void**)p[0]"
    fill = f"{symbol}_Tensors t; " + (
        f"t.p = {held}; " if launch.by_table else f"for (int i = 0; i < {len(tensors)}; ++i) t.p[i] = ({held})[i]; "
    )
    before, after = BROKEN[os.environ.get("TEST_GPU_BREAK", "")]
    address = f"char* first = (char*)({held})[{tensors.index(('output', 0))}]; "
    lines = [RUN + LAUNCH.format(name=name, call=call, before="", after="") for name, call in COMPARISON.items()]
    broken = (address + before, after.format(bytes=sizes["output", 0]))
    lines.append(
        RUN
        + LAUNCH.format(name=symbol, call=f"{fill}{symbol}(t, *(unsigned**)p[1])", before=broken[0], after=broken[1])
    )
    many = max(1, len(tensors))
    numbers = ", ".join(str(sizes[one]) for one in tensors) or "0"
    initialised = ", ".join(str(int(kind == "input")) for kind, _ in tensors) or "0"
    lines.append(f"{RUN}const int run_{symbol}_tensors[2] = {{{len(tensors)}, {int(launch.by_table)}}};")
    lines.append(f"{RUN}const long long run_{symbol}_bytes[{many}] = {{{numbers}}};")
    lines.append(f"{RUN}const int run_{symbol}_initialised[{many}] = {{{initialised}}};")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
