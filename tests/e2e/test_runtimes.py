"""The rows of `make runtimes` that fit into the time of CI: each trains on a stock runtime, in the environment of its image.

trl-sft trains in the tests of `make finetune`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.api.kinds import JOBSET, POD, SERVICE
from trainwright.api.objects import name_of
from trainwright.cluster.connect import connect

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


def test_cache_that_ends_during_training_fails_the_job(cluster: Any) -> None:
    program = cluster.data / "read_on.py"
    program.write_text(
        "import os, signal\n"
        "from trainwright.datacache.reader import CacheReader\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(143))\n"
        "reader = CacheReader(rank=0, readers=1)\n"
        "while True:\n"
        "    for batch in reader.batches():\n"
        "        print('read', batch.num_rows, flush=True)\n",
        "utf-8",
    )
    row = replace(
        rows.CACHED, name="lost", nodes=1, program="", options=(*rows.CACHED.options, "--command", f"python3 {program}")
    )
    api = connect(cluster.home / "kubeconfig")

    def pod_of(role: str) -> str:
        selector = f"jobset.sigs.k8s.io/replicatedjob-name={role}"
        pods = api.list(POD, "default", label_selector=selector).items
        return next((name_of(pod) for pod in pods if pod["status"].get("phase") == "Running"), "")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cluster.run, row)
        eventually(lambda: pod_of("node"), what="a node of the training")
        api.delete(POD, pod_of("worker"), "default")
        problem = running.result().problem
    assert "failed: DataCacheFailed: the data cache" in problem, problem
    left = [name_of(obj) for kind in (JOBSET, SERVICE) for obj in api.list(kind, "default").items if "-cache" in name_of(obj)]
    assert left == []


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
