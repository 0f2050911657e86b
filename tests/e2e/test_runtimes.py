"""The rows of `make runtimes` that fit into the time of CI: each trains on a stock runtime, in the environment of its image.

trl-sft trains in the tests of `make finetune`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
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


def test_cache_of_a_missing_table_fails_the_job(cluster: Any) -> None:
    options = [word.replace("{table}", "/nowhere/1.metadata.json") for word in rows.CACHED.options]
    problem = cluster.run(replace(rows.CACHED, name="no table", options=tuple(options))).problem
    assert "the data cache" in problem
    assert "METADATA_LOC=/nowhere/1.metadata.json: the table cannot be read" in problem


@pytest.mark.parametrize(
    ("log", "losses"),
    [
        ("[node-0-0] step=0 loss=1.5\n[node-0-0] step=1 loss=nan\n", ["1.5", "nan"]),
        ("[node-0-0] {'loss': '3.9', 'epoch': '0.5'}\n[node-0-0] {'train_runtime': 3.2}\n", ["3.9"]),
        (
            "[node-0-0] Step 1 | loss:11.7 lr:0.001 \n[node-0-0] 1|1|Loss: 11.7:  17%|x | 1/6 [00:02<00:13,  2.76s/it]\n",
            ["11.7", "11.7"],
        ),
        (
            "[launcher-0-0] \x1b[2K  \x1b[38;5;244m   5\x1b[0m    \x1b[1;32m2.134 \u25bc\x1b[0m    \x1b[1m3,470\x1b[0m    0.4k\n"
            "[launcher-0-0] \x1b[2K\x1b[1A   5    val 9.000    0.10s\n",
            ["2.134"],
        ),
        ("nothing\n", []),
    ],
    ids=["pairs", "transformers", "torchtune", "mlx_lm", "none"],
)
def test_losses_are_read_in_the_formats_of_the_rows(log: str, losses: list[str]) -> None:
    assert [str(loss) for loss in training.losses_in(log)] == losses


def test_every_stock_runtime_has_a_row() -> None:
    names = {file.stem for file in (Path(rows.__file__).parents[2] / "trainwright/runtimes/catalogue").glob("*.yaml")}
    missing = names - {row.runtime for row in rows.ROWS}
    assert missing == {"causal-lm-evaluation", "workspace-step"}
