"""Variables of a pod on which imported modules depend, and those that may differ from the parent's."""

from __future__ import annotations

import os

import pytest

from trainwright.controlplane.node.warm_start.variables import RecordingEnvironment, differing

PARENT = {"PATH": "/bin", "HOME": "/root", "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1", "LANG": "C.UTF-8"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"PET_NNODES": "2", "RANK": "0", "PYTHONPATH": "/code", "TORCHELASTIC_RUN_ID": "none", "LEARNING_RATE": "1"}, []),
        ({"HF_TOKEN": "secret", "WANDB_API_KEY": "secret", "HTTPS_PROXY": "http://proxy"}, []),
        ({"HOME": "/home/other"}, ["HOME"]),
        ({"READ_BY_A_MODULE": "1"}, ["READ_BY_A_MODULE"]),
        ({"OMP_NUM_THREADS": "1"}, ["OMP_NUM_THREADS"]),
        ({"OMP_NUM_THREADS": None}, ["OMP_NUM_THREADS"]),
        ({"PYTHONUNBUFFERED": None}, ["PYTHONUNBUFFERED"]),
        *(
            ({name: "1"}, [name])
            for name in (
                *("PYTHONHASHSEED", "PYTHONOPTIMIZE", "LD_PRELOAD", "LC_ALL", "OMP_PROC_BIND", "MKL_NUM_THREADS", "KMP_AFFINITY"),
                *("TORCH_LOGS", "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "TRANSFORMERS_CACHE"),
                *("MALLOC_ARENA_MAX", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HOME"),
            )
        ),
    ],
)
def test_differing_variables_are_named(changes: dict[str, str | None], expected: list[str]) -> None:
    env = {name: value for name, value in {**PARENT, **changes}.items() if value is not None}
    assert differing(env, PARENT, {"HOME", "READ_BY_A_MODULE"}) == expected


def test_reads_of_variables_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    monkeypatch.setattr(RecordingEnvironment, "names", names)
    monkeypatch.setattr(os.environ, "__class__", RecordingEnvironment)
    assert os.getenv("ASKED_BY_GETENV") is None
    assert "ASKED_BY_IN" not in os.environ
    with pytest.raises(KeyError):
        os.environ["ASKED_BY_INDEX"]
    assert {"ASKED_BY_GETENV", "ASKED_BY_IN", "ASKED_BY_INDEX"} <= names
