"""The rows of `make runtimes` that fit into the time of CI: each trains on a stock runtime, in the environment of its image.

Each kind of launcher also trains through the component and the operator, both jobs at the same time. trl-sft trains in the tests of
`make finetune`.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.local_pipeline import run_here
from support.waiting import eventually

from trainwright.api.kinds import JOBSET, NAMESPACE, POD, SECRET, SERVICE
from trainwright.api.objects import name_of
from trainwright.cluster.connect import connect
from trainwright.quickstart.airflow_dag import configure

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "runtimes"))
rows: Any = importlib.import_module("rows")
training: Any = importlib.import_module("training")

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="runtimes"), pytest.mark.timeout(400)]
QUICK = [row for row in rows.ROWS if row.is_quick]
LAUNCHERS = [row for row in QUICK if row is not rows.CACHED]
"""One row for each kind of launcher; that of the data cache has torchrun too, and a table that both jobs would read."""
SCALES = {"kfp": 1, "airflow": 3}
"""Of the goals that the jobs learn: the loss of a rank with a peer of the other job would be another one."""
MEET = """
import runpy, sys, time
from pathlib import Path

folder, own, peer = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
(folder / own).touch()
deadline = time.monotonic() + 90
while not (folder / peer).exists():
    if time.monotonic() > deadline:
        sys.exit(f"the job {peer} has not started")
    time.sleep(0.02)
del sys.argv[:4]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program when the processes of the other job have started, too."""
STRANGER = """
import struct, sys
import pyarrow as pa
from pyarrow import flight

for address in sys.argv[1:]:
    for scheme, options in (("grpc", {}), ("grpc+tls", {"disable_server_verification": True})):
        peer = flight.FlightClient(f"{scheme}://{address}:50051", **options)
        for call in (
            lambda: peer.do_get(flight.Ticket(struct.pack("<QQ", 0, 9999))).read_all(),
            lambda: peer.do_put(flight.FlightDescriptor.for_path("load"), pa.schema([("x", pa.int64())]))[0].close(),
        ):
            try:
                print(call())
            except flight.FlightError as error:
                print("refused" if "failed to connect" in str(error) else error)
"""
"""Reads from a cache, and gives it an assignment, as one that knows its addresses only."""
KFP = """
from kfp import dsl
from trainwright.components import train

@dsl.pipeline
def on_two_nodes(run_id: str, runtime: str, code: str, command: list):
    train(run_id=run_id, runtime=runtime, code=code, command=command, num_nodes=2, num_proc_per_node=1)
"""
DAGS = """
import json, os
from airflow.sdk import DAG
from trainwright.operators import TrainJobOperator

for runtime, command in json.loads(os.environ["COMMANDS"]).items():
    with DAG(runtime, schedule=None) as dag:
        TrainJobOperator(
            task_id="train", runtime=runtime, code=os.environ["CODE"], command=command, num_nodes=2, num_proc_per_node=1
        )
    globals()[runtime] = dag
"""
AIRFLOW = """
import json, os, sys, traceback
from datetime import UTC, datetime
from pathlib import Path
from airflow.utils import db
from airflow.utils.session import create_session

db.initdb()
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder / "airflow"))
import dags_of_runtimes
for runtime in json.loads(os.environ["COMMANDS"]):
    try:
        run = getattr(dags_of_runtimes, runtime).test(logical_date=datetime.now(UTC))
        with create_session() as session:
            (task,) = run.get_task_instances(session=session)
            result = task.xcom_pull(task_ids="train", session=session)
        print("TRAINED", json.dumps([runtime, float(result["metrics"]["loss"])]))
    except Exception:
        traceback.print_exc()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    training.prepare({row.environment for row in QUICK})
    with training.bench(tmp_path_factory.mktemp("runtimes")) as found:
        yield found


@pytest.fixture(scope="module")
def outcome_of(cluster: Any) -> Callable[[Any], Any]:
    """Train a row alone, once."""
    outcomes: dict[str, Any] = {}

    def run(row: Any) -> Any:
        if row.runtime not in outcomes:
            outcomes[row.runtime] = cluster.run(row)
        return outcomes[row.runtime]

    return run


@dataclass
class Trained:
    """The last loss for each runtime, as one orchestrator returned it."""

    losses: dict[str, float]
    printed: str

    def of(self, runtime: str) -> float:
        assert runtime in self.losses, self.printed
        return self.losses[runtime]


@pytest.fixture(scope="module")
def together(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Train each kind with both orchestrators at the same time."""
    folder = tmp_path_factory.mktemp("together")
    meeting = cluster.data / "together"
    meeting.mkdir()
    meeting.chmod(0o777)  # pods of the MPI runtimes run as user 1000
    code = shutil.copytree(training.PROGRAMS, folder / "code")
    (code / "meet.py").write_text(MEET, "utf-8")
    kubeconfig = cluster.home / "kubeconfig"
    with ThreadPoolExecutor(2) as pool:
        with_kfp = pool.submit(_with_kfp, folder, kubeconfig, code, meeting)
        with_airflow = pool.submit(_with_airflow, folder, kubeconfig, code, meeting)
        return {"kfp": with_kfp.result(), "airflow": with_airflow.result()}


def _with_kfp(folder: Path, kubeconfig: Path, code: Path, meeting: Path) -> Trained:
    file, losses, printed = folder / "on_two_nodes.py", {}, []
    file.write_text(KFP, "utf-8")
    for row in LAUNCHERS:
        runtime, root = row.runtime, folder / "kfp" / row.runtime
        values = {"run_id": f"kfp-{runtime}", "runtime": runtime, "code": str(code), "command": _words(row, "kfp", meeting)}
        ended, lines = run_here(str(file), values, root, kubeconfig)
        printed.append(lines)
        if ended.state == "SUCCEEDED":
            (output,) = root.rglob("executor_output.json")
            (metrics,) = json.loads(output.read_bytes())["artifacts"]["metrics"]["artifacts"]
            losses[runtime] = metrics["metadata"]["loss"]
    return Trained(losses, "\n".join(printed)[-6000:])


def _with_airflow(folder: Path, kubeconfig: Path, code: Path, meeting: Path) -> Trained:
    dags = folder / "airflow"
    dags.mkdir()
    (dags / "dags_of_runtimes.py").write_text(DAGS, "utf-8")
    commands = {row.runtime: _words(row, "airflow", meeting) for row in LAUNCHERS}
    own = {"KUBECONFIG": str(kubeconfig), "CODE": str(code), "COMMANDS": json.dumps(commands)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", AIRFLOW, str(folder)],
        env={**os.environ, **configure(folder / "home"), "AIRFLOW__CORE__DAGS_FOLDER": str(dags), **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        cwd=dags,
    )
    printed = done.stdout.decode("utf-8", "replace")
    lines = [json.loads(line[8:]) for line in printed.splitlines() if line.startswith("TRAINED ")]
    return Trained(dict(lines), printed[-6000:])


def _words(row: Any, name: str, meeting: Path) -> list[str]:
    own, peer = f"{row.runtime}-{name}", f"{row.runtime}-{'airflow' if name == 'kfp' else 'kfp'}"
    launcher = "torchrun" if row.runtime.startswith("torch") else "python3"
    program = row.program.removeprefix("python3 ").split()
    return [launcher, "meet.py", str(meeting), own, peer, *program, str(SCALES[name])]


@pytest.mark.parametrize("row", QUICK, ids=lambda row: f"{row.runtime} {row.name}")
def test_stock_runtime_trains(row: Any, outcome_of: Callable[[Any], Any]) -> None:
    assert outcome_of(row).problem == ""


@pytest.mark.parametrize("row", LAUNCHERS, ids=lambda row: row.runtime)
def test_jobs_of_component_and_operator_at_the_same_time_do_not_mix(
    row: Any, together: dict[str, Trained], outcome_of: Callable[[Any], Any]
) -> None:
    loss, other_loss = (together[name].of(row.runtime) for name in ("kfp", "airflow"))
    assert loss == pytest.approx(outcome_of(row).last, rel=1e-3)
    assert other_loss != pytest.approx(loss, rel=1e-2)


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
        caches = [api.get(POD, pod_of(role), "default")["status"]["podIP"] for role in ("head", "worker")]
        assert _printed_by_stranger(api, STRANGER, caches).splitlines() == ["refused"] * (len(caches) * 4)
        api.delete(POD, pod_of("worker"), "default")
        problem = running.result().problem
    assert "failed: DataCacheFailed: the data cache" in problem, problem
    left = [
        name_of(obj) for kind in (JOBSET, SERVICE, SECRET) for obj in api.list(kind, "default").items if "-cache" in name_of(obj)
    ]
    assert left == []


def _printed_by_stranger(api: Any, program: str, arguments: list[str]) -> str:
    """Run a program in a pod of another namespace. Returns what it printed."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stranger"}})
    image = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
    container = {"name": "c", "image": image, "command": ["python3", "-c", program, *arguments]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger", "namespace": "stranger"}, "spec": spec})
    ended = ("Succeeded", "Failed")
    eventually(lambda: api.get(POD, "stranger", "stranger").get("status", {}).get("phase") in ended, what="a stranger")
    printed = b"".join(api.logs("stranger", "stranger")).decode()
    api.delete(NAMESPACE, "stranger")
    return printed


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
