"""Compiles modules with XLA's GPU backend on a machine without a GPU, ahead of time for a described GPU, and keeps the optimized HLO.

    python -m scripts.benchmark.xla_gpu_hlo tests/fixtures/hlo/*.hlo --folder FOLDER [--device v100]

needs these packages in a separate environment (some 500 MB; the project does not depend on them):

    pip install jaxlib==0.6.2
    pip install --no-deps jax-cuda12-plugin==0.6.2 jax-cuda12-pjrt==0.6.2 "nvidia-cuda-nvcc-cu12<12.10"

jaxlib converts HLO's text to StableHLO, the plugin is XLA with its GPU backend, and NVIDIA's package has the assembler that the
backend runs at the end. The plugin compiles for a topology that does not exist if it gets a description of the device
(`target_config`, XLA's GpuTargetConfigProto). It writes the optimized module to XLA's dump folder, from which it is copied.

Two things differ from a run on such a GPU. Kernels are not chosen by timing (--xla_gpu_autotune_level=0). And matrix products go to
cuBLAS (--xla_gpu_enable_triton_gemm=false), as they do before Ampere; from Ampere on, timing would move some of them to Triton, which
fuses neighbours into the product.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Final

DEVICES: Final = {
    # Tesla V100-SXM2-16GB: AStitch's GPU (section 6). NVIDIA Tesla V100 GPU architecture whitepaper, tables 1 and 2.
    "v100": """
        gpu_device_info {
          cuda_compute_capability { major: 7 minor: 0 }
          core_count: 80  fpus_per_core: 64  clock_rate_ghz: 1.53
          threads_per_warp: 32  threads_per_block_limit: 1024  threads_per_core_limit: 2048
          block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
          shared_memory_per_block: 49152  shared_memory_per_block_optin: 98304  shared_memory_per_core: 98304
          registers_per_core_limit: 65536  registers_per_block_limit: 65536
          l2_cache_size: 6291456  memory_bandwidth: 898048000000  device_memory_size: 16935682048
        }
        platform_name: "CUDA"
        dnn_version_info { major: 9 minor: 8 }
        runtime_version { major: 12 minor: 8 }
        device_description_str: "Tesla V100-SXM2-16GB"
    """,
    # NVIDIA A100-SXM4-40GB. NVIDIA A100 Tensor Core GPU architecture whitepaper, tables 1 and 4.
    "a100": """
        gpu_device_info {
          cuda_compute_capability { major: 8 minor: 0 }
          core_count: 108  fpus_per_core: 64  clock_rate_ghz: 1.41
          threads_per_warp: 32  threads_per_block_limit: 1024  threads_per_core_limit: 2048
          block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
          shared_memory_per_block: 49152  shared_memory_per_block_optin: 166912  shared_memory_per_core: 167936
          registers_per_core_limit: 65536  registers_per_block_limit: 65536
          l2_cache_size: 41943040  memory_bandwidth: 1555200000000  device_memory_size: 42331013120
        }
        platform_name: "CUDA"
        dnn_version_info { major: 9 minor: 8 }
        runtime_version { major: 12 minor: 8 }
        device_description_str: "NVIDIA A100-SXM4-40GB"
    """,
}
_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false --xla_dump_hlo_as_text"


class GpuCompiler:
    """XLA's GPU backend for one of DEVICES. Create one per process, since XLA reads its flags once.

    dumps: XLA's dump folder. Raises ImportError if the packages named above are missing.
    """

    def __init__(self, device: str, dumps: pathlib.Path) -> None:
        plugin = importlib.import_module("jax_plugins.xla_cuda12")
        nvcc = importlib.import_module("nvidia.cuda_nvcc")
        self._dumps = dumps
        flags = f"{_FLAGS} --xla_dump_to={dumps} --xla_gpu_cuda_data_dir={next(iter(nvcc.__path__))}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # no messages about the missing GPU
        self._client: Any = importlib.import_module("jaxlib.xla_client")
        self._numpy: Any = importlib.import_module("numpy")
        library = pathlib.Path(next(iter(plugin.__path__))) / "xla_cuda_plugin.so"
        api = self._client.load_pjrt_plugin_dynamically("cuda", str(library))
        self._client.initialize_pjrt_plugin("cuda")
        described = {"target_config": DEVICES[device], "topology": "1x1x1"}
        topology = self._client.make_c_api_device_topology(api, "", **described)
        self._devices = topology._make_compile_only_devices()

    def optimized(self, text: str) -> str:
        """The text of a module after XLA's optimizations. Raises RuntimeError if XLA does not get that far."""
        xla = self._client._xla
        proto = xla.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        stable = xla.mlir.xla_computation_to_mlir_module(self._client.XlaComputation(proto))
        options = self._client.CompileOptions()
        options.device_assignment = self._client.DeviceAssignment.create(self._numpy.zeros([1, 1], "int32"))
        before = set(self._dumps.iterdir())
        failure: Exception | None = None
        try:
            self._devices[0].client.compile(stable.encode(), xla.DeviceList(tuple(self._devices)), options)
        except RuntimeError as error:  # a failure after the optimizations does not matter here
            failure = error
        found = [path for path in self._dumps.glob("*gpu_after_optimizations.txt") if path not in before]
        if not found:
            raise RuntimeError(f"XLA left no optimized module: {failure}")
        return max(found, key=lambda path: path.stat().st_size).read_text()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE", help="HLO as text, not optimized")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="folder of the optimized modules")
    parser.add_argument("--device", choices=DEVICES, default="v100")
    arguments = parser.parse_args(words)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stitchfleet-xla-") as dumps:
        compiler = GpuCompiler(arguments.device, pathlib.Path(dumps))
        for path in arguments.files:
            text = compiler.optimized(path.read_text())
            (arguments.folder / path.name).write_text(text)
            print(f"{path.name}: {len(text) / 1024:.0f} KiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
