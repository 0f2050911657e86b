"""The rows of `make runtimes` that fit into the time of CI: each trains on a stock runtime, in the environment of its image.

trl-sft trains in the tests of `make finetune`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "runtimes"))
rows: Any = importlib.import_module("rows")
training: Any = importlib.import_module("training")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
QUICK = [row for row in rows.ROWS if row.is_quick]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    training.prepare({row.environment for row in QUICK})
    with training.bench(tmp_path_factory.mktemp("runtimes")) as found:
        yield found


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.runtime} {row.name}")
def test_stock_runtime_trains(row: Any, cluster: Any) -> None:
    assert cluster.run(row).problem == ""


def test_every_stock_runtime_has_a_row() -> None:
    names = {file.stem for file in (Path(rows.__file__).parents[2] / "trainwright/runtimes/catalogue").glob("*.yaml")}
    missing = names - {row.runtime for row in rows.ROWS}
    assert missing == {"causal-lm-evaluation", "workspace-step", "torch-distributed-with-cache"}
