"""Commands on TrainJobs against an embedded cluster, and against none."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.ports import free_port
from support.sigterm_scripts import WAIT
from support.waiting import eventually

from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, POD, TRAINJOB
from trainwright.cluster import NoCluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs.state.pods import pods_of

Run = Callable[..., Any]
pytestmark = pytest.mark.medium
LONG = "a-name-that-is-as-long-as-the-names-of-jobs-may-be-here"


def refused(result: Any, code: int, words: str) -> None:
    """One line on stderr, nothing on stdout."""
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stdout == ""


PRINT_BYTES = "printf 'a\\377b\\033[2J\\r\\n'; head -c 200000 /dev/zero | tr '\\0' x; echo"


def test_logs_into_a_file_have_the_bytes_of_the_log(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    run("submit", "-f", write(trainjob("raw", script=PRINT_BYTES)), "--wait")
    for more in ((), ("-f",)):
        assert run("logs", "raw", *more).stdout_bytes == b"a\xffb\x1b[2J\r\n" + b"x" * 200_000 + b"\n"


def test_submit_wait_logs_get_describe_delete(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    assert (
        run("submit", "-f", write(trainjob("whole", script="echo hello ü; echo bye"))).stdout
        == "TrainJob default/whole created\n"
    )
    waited = run("wait", "whole", "--timeout", "60")
    assert (waited.exit_code, waited.stdout) == (0, "TrainJob default/whole Succeeded\n")
    assert re.search("^Succeeded", waited.stderr, re.MULTILINE)  # the usage follows if it is not zero
    assert run("logs", "whole", "--index", "0").stdout == "hello ü\nbye\n"
    assert run("logs", "whole", "--index", "0", "-f").stdout == "hello ü\nbye\n"
    assert run("logs", "whole", "--index", "0", "--tail", "1").stdout == "bye\n"
    assert run("logs", "whole").stdout == "hello ü\nbye\n"
    assert run("logs", "whole", "--all", "-f").stdout == "[node-0-0] hello ü\n[node-0-0] bye\n"
    stamped = run("logs", "whole", "--timestamps", "--all").stdout
    assert re.fullmatch(r"(\[node-0-0\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (hello ü|bye)\n){2}", stamped)
    assert run("logs", "whole", "--since", "1h").stdout == "hello ü\nbye\n"
    assert run("logs", "whole", "--since", "2100-01-01T00:00:00Z").stdout == ""
    refused(run("logs", "whole", "--since", "yesterday"), 2, "'yesterday' is neither an age")
    refused(run("logs", "whole", "--previous", "-f"), 2, "cannot be followed")
    refused(run("logs", "whole", "--previous"), 1, "previous terminated container")
    refused(run("logs", "whole", "--rank", "7"), 1, "no pods of the step 'node' and rank 7 (steps with pods: node)")
    refused(run("logs", "whole", "--step", "launcher"), 1, "no pods of the step 'launcher'")
    described = run("describe", "whole")
    assert described.exit_code == 0
    assert "Phase:      Succeeded" in described.stdout
    assert json.loads(run("get", "whole", "-o", "json").stdout)["metadata"]["name"] == "whole"
    assert yaml.safe_load(run("get", "whole", "-o", "yaml").stdout)["kind"] == "TrainJob"
    refused(run("cancel", "whole"), 1, "has already ended: Succeeded")
    assert run("delete", "whole").stdout == "TrainJob whole deleted\n"
    eventually(lambda: run("get", "whole").exit_code == 1)
    refused(run("delete", "whole"), 1, '"whole" not found')


def test_describe_says_what_a_job_waits_for(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    volumes = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}]}
    pods = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": volumes}}}}]}
    waiting = trainjob("claimless")
    patch = {"manager": "example.com/claim", "trainingRuntimeSpec": {"template": {"spec": pods}}}
    waiting["spec"]["runtimePatches"] = [*waiting["spec"].get("runtimePatches", []), patch]
    run("submit", "-f", write(waiting))
    words = (
        r'^Waiting: +pod claimless-node-0-0-\w+ is waiting: .*persistentvolumeclaim "nowhere" not found.*; create what is missing'
    )
    eventually(lambda: re.search(words, run("describe", "claimless").stdout, re.MULTILINE))
    run("delete", "claimless")


def test_a_list_is_a_table_that_is_never_cut_or_a_list_document(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    run("submit", "-f", write(trainjob(LONG, suspend=True)))
    table = run("get")
    assert table.stdout.splitlines()[0].split() == ["NAMESPACE", "NAME", "PHASE", "PROGRESS", "RUNTIME", "NODES", "CREATED"]
    row = next(line for line in table.stdout.splitlines() if LONG in line)
    assert row.split()[:5] == ["default", LONG, "Suspended", "torch-distributed", "1"], "the nodes of the runtime"
    for content in (json.loads(run("get", "-o", "json").stdout), yaml.safe_load(run("get", "-A", "-o", "yaml").stdout)):
        assert content["kind"] == "List"
        assert LONG in [item["metadata"]["name"] for item in content["items"]]
    assert LONG not in run("get", "-n", "other").stdout
    assert LONG in run("get", "-A").stdout
    run("delete", LONG)


def test_submit_prints_one_document(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    one = yaml.safe_load(run("submit", "-f", write(trainjob("p1", suspend=True)), "-o", "yaml").stdout)
    assert (one["kind"], one["metadata"]["namespace"]) == ("TrainJob", "default")
    several = write(trainjob("p2", suspend=True), trainjob("p3", suspend=True))
    many = json.loads(run("submit", "-f", several, "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in many["items"]] == ["p2", "p3"]
    for name in ("p1", "p2", "p3"):
        run("delete", name)


def test_submit_checks_all_documents_before_it_creates_one(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    bad = trainjob("bad", trainer={"numNodes": "x"})
    refused(run("submit", "-f", write(trainjob("good", suspend=True), bad)), 2, "spec.trainer.numNodes: ")
    assert run("get", "good").exit_code == 1
    run("submit", "-f", write(trainjob("twice", suspend=True)))
    refused(run("submit", "-f", write(trainjob("twice", suspend=True))), 1, "TrainJob 'twice' already exists")
    refused(run("submit", "-f", write(trainjob("lost", suspend=True)), "-n", "nowhere"), 2, "kubectl create namespace nowhere")
    run("delete", "twice")


def test_cancel_suspends_and_says_so_the_second_time(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    run("submit", "-f", write(trainjob("long", script=WAIT)))
    job = plane.cluster.get(TRAINJOB, "long", "default")
    eventually(lambda: run("logs", "long").stdout)
    assert run("cancel", "long").stdout == "TrainJob long suspended\n"
    assert not pods_of(plane.cluster, job), "it waits until they are gone"
    assert run("cancel", "long").stdout == "TrainJob long is already suspended\n"
    timed_out = run("wait", "long", "--timeout", "0.2")
    assert timed_out.exit_code == 23
    assert "has not ended within 0.2 s: it is Suspended" in timed_out.stderr
    run("delete", "long")


def test_cancel_by_deleting_and_pods_that_outlive_the_time(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    run("submit", "-f", write(trainjob("stubborn", script="trap '' TERM; echo on; while true; do sleep 0.1; done")))
    eventually(lambda: run("logs", "stubborn").stdout)
    refused(run("cancel", "stubborn", "--wait", "0"), 1, "suspended, but after 0 s still running: ")
    refused(run("cancel", "stubborn", "--by", "delete", "--wait", "0"), 1, "deleted, but after 0 s still running: ")
    for pod in pods_of(plane.cluster, plane.cluster.get(TRAINJOB, "stubborn", "default")):
        plane.cluster.delete(POD, pod["metadata"]["name"], "default", grace_period_seconds=0)
    eventually(lambda: run("get", "stubborn").exit_code == 1)
    run("submit", "-f", write(trainjob("brief", script="trap 'exit 0' TERM; echo on; sleep 1000 & wait")))
    eventually(lambda: run("logs", "brief").stdout)  # a signal before the trap is ignored
    assert run("cancel", "brief", "--by", "delete").stdout == "TrainJob brief deleted\n"


def test_wait_reports_why_it_failed(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    job = trainjob("broken", script="sleep 1000", activeDeadlineSeconds=1)
    run("submit", "-f", write(job))
    result = run("wait", "broken", "--timeout", "60")
    assert result.exit_code == 22
    assert "TrainJob default/broken failed: DeadlineExceeded" in result.stderr
    assert result.stdout == ""
    run("delete", "broken")


@pytest.mark.parametrize("command", ["get", "describe", "wait", "cancel", "delete", "logs"])
def test_a_job_that_does_not_exist_and_a_name_that_is_none(plane: ControlPlane, run: Run, command: str) -> None:
    refused(run(command, "nothing"), 1, '"nothing" not found')
    refused(run(command, "a/b"), 1, "name: 'a/b' is not the name of a TrainJob")
    if command != "get":
        refused(run(command, ""), 1, "name: '' is not the name of a TrainJob")


def test_runtimes_of_the_cluster(plane: ControlPlane, run: Run) -> None:
    assert "torch-distributed" in run("runtimes", "list", "--cluster").stdout


@pytest.mark.parametrize(
    "command", [["get"], ["get", "x"], ["wait", "x"], ["delete", "x"], ["logs", "x"], ["runtimes", "list", "--cluster"]]
)
def test_a_dead_cluster_is_one_line(
    plane: ControlPlane, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(
        RetryingCluster, "with_retries", lambda *_: pytest.fail("a stopped cluster does not come back by waiting")
    )
    port = free_port()
    config = yaml.safe_load(plane._home.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    (tmp_path / "dead").write_text(yaml.safe_dump(config))
    refused(run(*command, "--kubeconfig", str(tmp_path / "dead")), 3, f"127.0.0.1:{port}: Connection refused: check that")
    (tmp_path / "state.db").touch()
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    refused(run(*command, "--home", str(tmp_path)), 3, f"is stopped; start it with `trainwright up --home {tmp_path}`")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path))
    refused(run(*command), 3, f"the embedded cluster in {tmp_path} is stopped; start it with `trainwright up`")
    refused(run(*command, "--kubeconfig", str(tmp_path / "none")), 3, f"{tmp_path / 'none'} (argument) cannot be read")
    refused(run(*command, "--home", str(tmp_path / "nowhere")), 3, "no embedded cluster was ever started in")
    refused(run(*command, "--home", str(tmp_path), "--kubeconfig", "x"), 2, "--home and --kubeconfig exclude each other")


def test_the_variable_of_the_home_selects_the_cluster(plane: ControlPlane, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/of-another-cluster")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(plane._home.path))
    assert "torch-distributed" in run("runtimes", "list", "--cluster").stdout
    refused(run("get", "--kubeconfig", "/nonexistent/file"), 3, "/nonexistent/file (argument) cannot be read")


def test_the_mode_embedded_starts_the_cluster_of_the_home(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(home: Path) -> Path:
        raise NoCluster(f"started {home}")

    monkeypatch.setattr(sys.modules["trainwright.cluster.connect"], "start_embedded", start)
    refused(run("get", "--submission-mode", "embedded", "--home", str(tmp_path)), 3, f"started {tmp_path}")
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "other"))
    refused(run("get", "--submission-mode", "embedded"), 3, f"started {tmp_path / 'other'}")


def test_bundled_runtimes_are_applied_to_a_cluster(plane: ControlPlane, run: Run) -> None:
    plane.cluster.delete(CLUSTER_TRAINING_RUNTIME, "jax-distributed")
    plane.cluster.patch(CLUSTER_TRAINING_RUNTIME, "torch-distributed", {"spec": {"mlPolicy": {"numNodes": 3}}})
    done = run("runtimes", "apply", "jax-distributed", "torch-distributed", "trl-sft")
    lines = [line.removeprefix("clustertrainingruntime/") for line in done.stdout.splitlines()]
    assert lines == ["jax-distributed created", "torch-distributed configured", "trl-sft unchanged"]
    assert plane.cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")["spec"]["mlPolicy"]["numNodes"] == 1
    done = run("runtimes", "apply", "torch-distribute")
    assert done.exit_code == 2
    assert "did you mean 'torch-distributed'?" in done.stderr


def test_an_early_trainjob_is_upgraded_with_a_note(plane: ControlPlane, run: Run, write: Any) -> None:
    early = {
        "apiVersion": "kubeflow.org/v2alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "early"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "numNodes": 2, "labels": {"team": "x"}, "suspend": True},
    }
    done = run("submit", "-f", write(early))
    assert done.exit_code == 0, done.stderr
    assert "early: spec.labels: became a runtimePatch" in done.stderr
    assert plane.cluster.get(TRAINJOB, "early", "default")["spec"]["trainer"] == {"numNodes": 2}


def test_submit_says_where_to_go_on_from(plane: ControlPlane, run: Run, write: Any, trainjob: Any) -> None:
    refused(run("submit", "-f", write(trainjob()), "--resume", "sometimes"), 2, "resume: 'sometimes': expected auto, last, never")
    refused(run("submit", "-f", write(trainjob()), "--resume", "s3://bucket/run"), 2, "cannot resume from an export")
    assert run("get", "demo").exit_code == 1
    job = write(trainjob("afresh", runtimeRef={"name": "trl-sft"}, suspend=True))
    made = run("submit", "-f", job, "--resume", "s3://bucket/run", "--resume-secret", "store", "-o", "json")
    (patch,) = json.loads(made.stdout)["spec"]["runtimePatches"]
    assert patch["manager"] == "trainwright.dev/resume"
    assert "s3://bucket/run" in json.dumps(patch)
    assert "AWS_SECRET_ACCESS_KEY" in json.dumps(patch)
    doubted = run("submit", "-f", write(trainjob("doubted")), "--resume", "never")
    assert "whether it starts from scratch depends on its program" in doubted.stderr
    assert doubted.stdout == "TrainJob default/doubted created\n"
