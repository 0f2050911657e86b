"""The variables of the environment on which imported modules depend: a process with other values must import them itself.

Standard library only. What Python code reads while modules are imported is recorded. What the interpreter and C libraries read is not
seen, so that their variables are known by the beginnings of their names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_READ_BY_PROGRAMS = (
    *("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "LOCPATH", "NLSPATH"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NPY_", "NUMPY_", "NUMEXPR_", "ONEDNN_", "DNNL_"),
    *(
        "TORCH",
        "PYTORCH",
        "PT2_",
        "ATEN_",
        "C10_",
        "CAFFE2_",
        "GLOG_",
        "KINETO_",
        "CUDA",
        "NVIDIA_",
        "HIP_",
        "ROCR_",
        "HSA_",
        "XPU_",
    ),
    *("HF_HUB_", "HF_HOME", "TRANSFORMERS_", "TOKENIZERS_", "ACCELERATE_", "PEFT_", "SAFETENSORS_", "FSDP_", "DEEPSPEED_"),
    *("TQDM_", "FSSPEC_", "RUST_", "RAYON_"),
)
"""The beginnings of names; `tqdm` and `fsspec` read all variables that begin so."""
_SET_BY_LAUNCHERS = ("PYTHONPATH", "TORCHELASTIC_", "TORCH_NCCL_")
"""Beginnings of names that are no such variables: torchrun sets them for each rank, or this package treats them."""


class RecordingEnvironment(os._Environ):  # type: ignore[type-arg]
    """The environment of a process that remembers which variables were asked for."""

    names: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.names.add(key)
        return super().__getitem__(key)  # type: ignore[no-any-return]

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return super().__contains__(key)


def differing(env: Mapping[str, str], parent: Mapping[str, str], recorded: set[str]) -> list[str]:
    """Return the names of the variables on which imports depend and whose values differ from those of the process that imported."""
    return sorted(
        name for name in {*env, *parent} if env.get(name) != parent.get(name) and (name in recorded or _is_read_by_programs(name))
    )


def _is_read_by_programs(name: str) -> bool:
    return name.startswith(_READ_BY_PROGRAMS) and not name.startswith(_SET_BY_LAUNCHERS)
