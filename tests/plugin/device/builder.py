"""The emulated library of a cubin that the compile service made: `builder.py CACHE IMAGE` prints its path.

The kernel cache has the source beside the image. Called by the tests' driver (test_gpu.cc) for each image that is loaded.
TEST_GPU_BREAK=N: every kernel is right for its first N launches only; then the first element of its first output is off by one.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from tests.compiler.cuda_emulator import build

RUN = 'extern "C" __attribute__((visibility("default"))) '
LAUNCH = (
    "int run_{name}(void** p, const emulator::Launch* launch) {{ "
    "const int faults = emulator::launch(*launch, [&] {{ {call}; }}); {after} return faults; }}"
)
COMPARISON = {
    "stitch_largest": "stitch_largest(*(void**)p[0], *(long long*)p[1], *(int*)p[2], *(StitchCompared**)p[3])",
    "stitch_compare": "stitch_compare(*(void**)p[0], *(void**)p[1], *(long long*)p[2], *(int*)p[3], *(double*)p[4], *(double*)p[5], "
    "*(StitchCompared**)p[6])",
}


def main() -> None:
    cache, image = map(pathlib.Path, sys.argv[1:])
    entry = find_entry(cache, image.read_bytes())
    metadata = json.loads((entry / "entry.json").read_text())["metadata"]
    print(build((entry / "kernel.cc").read_text(), trampolines(metadata), entry).library._name)


def find_entry(cache: pathlib.Path, image: bytes) -> pathlib.Path:
    for path in (cache / "kernels").glob("??/*/kernel.so"):
        if path.read_bytes().startswith(image):
            return path.parent
    raise SystemExit(f"no kernel of {cache} has this image")


def trampolines(metadata: dict[str, object]) -> str:
    """The functions by which the driver launches a kernel and the comparison behind it, and what it has to know of the tensors."""
    launch, symbol = metadata["launch"], metadata["symbol"]
    assert isinstance(launch, dict)
    sizes = {("scratch", 0): int(str(metadata["scratch_bytes"]))}
    for kind in ("input", "output"):
        described = metadata[f"{kind}s"]
        assert isinstance(described, list)
        for number, tensor in enumerate(described):
            item = {
                "f16": 2,
                "bf16": 2,
                "f32": 4,
                "f64": 8,
                "pred": 1,
                "s32": 4,
                "u32": 4,
                "s64": 8,
                "u64": 8,
                "s8": 1,
                "u8": 1,
            }
            sizes[kind, number] = int(np.prod(tensor["shape"], dtype=np.int64)) * item[tensor["dtype"]]
    tensors = [tuple(pair) for pair in launch["tensors"]]
    held = "*(void***)p[0]" if launch["by_table"] else "(void**)p[0]"
    fill = f"{symbol}_Tensors t; " + (
        f"t.p = {held}; " if launch["by_table"] else f"for (int i = 0; i < {len(tensors)}; ++i) t.p[i] = ({held})[i]; "
    )
    calls = {symbol: f"{fill}{symbol}(t, *(unsigned**)p[1])", **COMPARISON}
    broken = os.environ.get("TEST_GPU_BREAK")
    output = tensors.index(("output", 0))
    spoil = (
        f"static int launches = 0; if (++launches > {broken}) *(float*)({held})[{output}] += 1.0f;" if broken else ""
    )
    lines = [
        RUN + LAUNCH.format(name=name, call=call, after=spoil if name == symbol else "") for name, call in calls.items()
    ]
    many = max(1, len(tensors))
    numbers = ", ".join(str(sizes[one]) for one in tensors) or "0"
    initialised = ", ".join(str(int(kind == "input")) for kind, _ in tensors) or "0"
    lines.append(f"{RUN}const int run_{symbol}_tensors[2] = {{{len(tensors)}, {int(launch['by_table'])}}};")
    lines.append(f"{RUN}const long long run_{symbol}_bytes[{many}] = {{{numbers}}};")
    lines.append(f"{RUN}const int run_{symbol}_initialised[{many}] = {{{initialised}}};")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
