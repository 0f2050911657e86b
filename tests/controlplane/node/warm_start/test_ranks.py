"""Options of torchrun with which its ranks are plain processes, by torchrun's own parser."""

from __future__ import annotations

import pytest
from support.optional_packages import require_packages

from trainwright.controlplane.node.warm_start.ranks import ranks_of

pytestmark = pytest.mark.medium
require_packages("torch")
STATIC = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "3", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in STATIC.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], 3),
        (["--nproc-per-node", "1"], 1),
        (["--nproc_per_node=2", "--nnodes=1", "--role=trainer", "--rdzv_id=7"], 2),
        (["-m"], 3),
        (["--max-restarts", "0", "--rdzv-backend", "static"], 3),
    ],
)
def test_ranks_of_static_jobs_are_counted(words: list[str], expected: int) -> None:
    assert ranks_of([*words, "train.py", "--max-restarts", "1"]) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--nnodes", "1:2"],
        ["--max-restarts", "1"],
        ["--rdzv-backend", "c10d"],
        ["--rdzv-endpoint", "a:1"],
        ["--rdzv-conf", "timeout=1"],
        ["--standalone"],
        ["--no-python"],
        ["--run-path"],
        ["--log-dir", "/tmp/logs"],
        ["--redirects", "3"],
        ["--tee", "3"],
        ["--local-ranks-filter", "0"],
        ["--duplicate-stdout-filters", "a"],
        ["--duplicate-stderr-filters", "a"],
        ["--logs-specs", "mine"],
        ["--numa-binding", "node"],
        ["--virtual-local-rank"],
        ["--event-log-handler", "console"],
        ["--nproc-per-node", "gpu"],
        ["--nproc-per-node", "0"],
        ["--nproc-per-node", "many"],
        ["--unknown"],
        ["--help"],
    ],
    ids=lambda words: words[0],
)
def test_ranks_of_rejects_options_that_change_how_ranks_start(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert ranks_of([*words, "train.py"]) is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "variable", [("PET_MAX_RESTARTS", "1"), ("PET_STANDALONE", "1"), ("PET_NNODES", "1:4"), ("PYTHON_EXEC", "/bin/python")]
)
def test_variables_count_like_options(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*variable)
    assert ranks_of(["train.py"]) is None


def test_missing_port_is_left_to_an_executed_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PET_MASTER_PORT")
    assert ranks_of(["train.py"]) is None


def test_every_option_of_torchrun_is_known() -> None:
    from torch.distributed import run

    from trainwright.controlplane.node.warm_start.ranks import _FREE, _UNDERSTOOD

    assert {*vars(run.parse_args(["train.py"]))} == {*_FREE, *_UNDERSTOOD}
