"""Shims of training frameworks: installed in an environment, and applied when the framework is imported, for known versions only."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.controlplane.environments import shims
from trainwright.controlplane.environments.store import install_shims

COMM = """
import os
log = []
def mpi_discovery(distributed_port=29500, verbose=True):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "192.0.2.7", str(distributed_port)
"""
TORCH = """
class accelerator:
    name = "cpu"
    @classmethod
    def device_name(cls): return cls.name
def get_accelerator(): return accelerator
def build_shm_op(): return "built"
"""
SEEN = """
import os, sys, inspect
from deepspeed.comm import comm, torch
comm.mpi_discovery(); print(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
comm.mpi_discovery(distributed_port=31000); print(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
print(torch.build_shm_op()); torch.accelerator.name = "cuda"; print(torch.build_shm_op())
print(type(comm.__loader__).__name__, inspect.getsource(comm).count("def "))
"""


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """A folder of packages with a DeepSpeed, and the shims."""
    folder = tmp_path / "site-packages"
    for name, text in (("__init__", ""), ("comm/__init__", ""), ("comm/comm", COMM), ("comm/torch", TORCH)):
        (folder / "deepspeed" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "deepspeed" / f"{name}.py").write_text(text)
    set_version(folder, "0.19.5")
    install_shims(folder)
    return folder


def set_version(folder: Path, version: str) -> None:
    metadata = folder / "deepspeed-0.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\n")


def printed(folder: Path, program: str, port: str = "31234") -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that reads the folder's .pth files."""
    start = f"import site; site.addsitedir({str(folder)!r})\n"
    env = {**os.environ, "TRAINWRIGHT_RENDEZVOUS_PORT": port, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-S", "-c", start + program], env=env, capture_output=True, text=True, check=True)


@pytest.mark.medium
def test_deepspeed_meets_at_the_port_of_the_job_and_builds_no_op_on_a_cpu(site_packages: Path) -> None:
    done = printed(site_packages, SEEN)
    assert done.stdout.splitlines() == ["127.0.0.1 31234", "192.0.2.7 31000", "None", "built", "SourceFileLoader 1"]
    assert done.stderr == ""
    assert printed(site_packages, SEEN, port="").stdout.startswith("192.0.2.7 29500\n"), "not a pod of the embedded node"


@pytest.mark.parametrize("version", ["0.15.4", "0.20.0", "1.0"])
def test_shims_leave_untried_versions_unchanged(site_packages: Path, version: str) -> None:
    set_version(site_packages, version)
    assert printed(site_packages, SEEN).stdout.splitlines()[:3] == ["192.0.2.7 29500", "192.0.2.7 31000", "built"]


def test_nothing_is_imported_until_a_framework_is(site_packages: Path) -> None:
    seen = (
        "import sys; print(sorted(name for name in sys.modules if 'shims' in name or name in ('importlib.metadata', 'typing')))"
    )
    assert printed(site_packages.parent, seen).stdout == "[]\n"
    assert printed(site_packages, seen).stdout == "['trainwright_shims']\n"


def test_shims_name_functions_that_are_there_and_need_no_new_python() -> None:
    for path in Path(shims.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 9))
        imported = {
            alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        imported |= {str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported <= sys.stdlib_module_names
    for package, function in shims.SHIMS.values():
        tree = ast.parse(Path(shims.__file__).with_name(f"{package}.py").read_text("utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not any(type(finder).__name__ == "ShimFinder" for finder in sys.meta_path), "the node changes nothing for itself"


JAX = """
def initialize(coordinator_address=None, num_processes=None, process_id=None, local_device_ids=None):
    print(coordinator_address, num_processes, process_id, local_device_ids)
"""
JAX_CALLS = """
import os
from jax._src.distributed import initialize
initialize()
os.environ.update(JAX_COORDINATOR_ADDRESS="node-0:29500", JAX_NUM_PROCESSES="2", JAX_PROCESS_ID="1")
initialize()
initialize(local_device_ids=[0])
initialize("other:1", 4, 3)
"""


def write_package(folder: Path, name: str, version: str, modules: dict[str, str]) -> None:
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    about = folder / f"{name}-0.dist-info" / "METADATA"
    about.parent.mkdir(exist_ok=True)
    about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_jax_takes_missing_arguments_from_the_runtime(site_packages: Path) -> None:
    modules = {"jax/__init__.py": "", "jax/_src/__init__.py": "", "jax/_src/distributed.py": JAX}
    write_package(site_packages, "jax", "0.10.2", modules)
    expected = ["None None None None", "node-0:29500 2 1 None", "node-0:29500 2 1 [0]", "other:1 4 3 None"]
    assert printed(site_packages, JAX_CALLS).stdout.splitlines() == expected


TORCH_WITHOUT_GPU = """
class cuda:
    available = False
    @classmethod
    def is_available(cls): return cls.available
"""
TUNE = {
    "torch/__init__.py": TORCH_WITHOUT_GPU,
    "torch/distributed/__init__.py": "from .distributed_c10d import *",
    "torch/distributed/distributed_c10d.py": "import torch\ndef init_process_group(backend=None, **more): return backend, more\n",
    "torchtune/__init__.py": "",
    "torchtune/training/__init__.py": "",
    "torchtune/training/memory.py": (
        "import torch\ndef get_memory_stats(device, reset_stats=True): return 'of the GPU'\n"
        "def cleanup_before_training(): print('emptied')\n"
    ),
    "torchtune/utils/__init__.py": "",
    "torchtune/utils/_device.py": "import torch\ndef get_device(device=None): return device\n",
}
TUNE_CALLS = """
import torch
from torch.distributed import init_process_group
from torchtune.training import memory
from torchtune.utils._device import get_device
class Device:
    type = "cpu"
for torch.cuda.available in (False, True):
    print(init_process_group("cuda:nccl,cpu:gloo", rank=1), init_process_group("gloo"), get_device("cuda"), get_device("cpu"))
    print(memory.get_memory_stats(Device)); memory.cleanup_before_training()
"""


def test_torchtune_trains_without_a_gpu(site_packages: Path) -> None:
    write_package(site_packages, "torchtune", "0.6.1", TUNE)
    lines = printed(site_packages, TUNE_CALLS).stdout.splitlines()
    zeros = "{'peak_memory_active': 0.0, 'peak_memory_alloc': 0.0, 'peak_memory_reserved': 0.0}"
    assert lines == [
        "('gloo', {'rank': 1}) ('gloo', {}) cpu cpu",
        zeros,
        "('cuda:nccl,cpu:gloo', {'rank': 1}) ('gloo', {}) cuda cpu",
        zeros,
        "emptied",
    ]


def test_torch_stays_as_it_is_without_torchtune(site_packages: Path) -> None:
    write_package(site_packages, "torch", "2.13.0", {path: text for path, text in TUNE.items() if path.startswith("torch/")})
    program = "from torch.distributed import init_process_group; print(init_process_group('cuda:nccl,cpu:gloo')[0])"
    assert printed(site_packages, program).stdout == "cuda:nccl,cpu:gloo\n"
