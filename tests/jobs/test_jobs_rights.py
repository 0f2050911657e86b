"""The table of calls is the calls that are made: recorded from the client while jobs are submitted, followed, stopped and reported."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import train_request
from support.on_first_use import OnFirstUse
from support.rbac_evaluator import Rbac
from support.running_plane import running_plane
from support.sigterm_scripts import WAIT
from support.waiting import eventually

import trainwright
from trainwright.api import names
from trainwright.api.kinds import EVENT, JOB, JOBSET, LEASE, POD, TRAINJOB, Kind
from trainwright.api.objects import annotations_of, name_of
from trainwright.cluster import connect
from trainwright.cluster.refusals import permission_for
from trainwright.controlplane.controllers.local_queue import queues_map
from trainwright.jobs import (
    Identity,
    RunFolderTaken,
    Submission,
    TrainJobDeleted,
    TrainJobNameTaken,
    TrainRequest,
    submit_or_adopt,
    wait_for,
)
from trainwright.jobs.diagnosis.pod_failure import pod_failure
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.logs.follow_logs import follow_logs
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.watched_pods import WatchedPods
from trainwright.jobs.submit.rbac import CALLS, JOBSET_MODE_CALLS, LOCAL_QUEUE, READ_WORKFLOW, WORKLOAD, ApiCall
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission import JobsClient, connect_for_jobs
from trainwright.submission.jobs_client import forget_served

dynamic = OnFirstUse("kubernetes.dynamic")

SPACE = "default"
NOT_EMBEDDED = (EVENT, JOB, WORKLOAD, LOCAL_QUEUE, LEASE)
"""What is asked for only on clusters with Kueue or Trainer's manager, or only in some failures."""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane._home.kubeconfig


class Recorder:
    """The rights that requests need, by the act during which they are made."""

    def __init__(self) -> None:
        self.act, self.made = "", set()  # type: ignore[var-annotated]

    def during(self, act: str) -> None:
        self.act = act

    def observe_status(self, method: str, path: str, query: Any) -> None:
        if self.act and (right := permission_for(method, path, query or [])) is not None:
            self.made.add((self.act, str(right)))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder, ask = Recorder(), dynamic.DynamicClient.request

    def recorded(client: dynamic.DynamicClient, method: str, path: str, **more: Any) -> Any:
        recorder.observe_status(method, path, more.get("query_params"))
        return ask(client, method, path, **more)

    monkeypatch.setattr(dynamic.DynamicClient, "request", recorded)
    return recorder


@pytest.mark.medium
def test_the_table_is_what_is_asked(
    kubeconfig: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = connect_for_jobs(kubeconfig)
    forget_served(cluster)

    def request(script: str, **fields: Any) -> TrainRequest:
        return train_request(**{"runtime": "torch-distributed", "command": ["bash", "-c", script], **fields})

    def submitted(step: str, script: str) -> Any:
        return submit_or_adopt(Submission(cluster, request(script), Identity("o", "r", step), SPACE)).trainjob

    taken = Identity("o", "r", "taken")
    job = {"runtimeRef": {"name": "torch-distributed"}, "suspend": True}
    metadata = {"name": taken.name(), "namespace": SPACE}
    cluster.create({"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": job})
    recorder.during("submit")
    with pytest.raises(TrainJobNameTaken):
        submit_or_adopt(Submission(cluster, request("true"), taken, SPACE))
    for kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
        with pytest.raises(RuntimeNotFound):
            submit_or_adopt(
                Submission(cluster, request("true", runtime="none", runtime_kind=kind), Identity("o", "r", "s"), SPACE)
            )
    failing = submitted("failing", "echo hello; exit 3")
    sleeping = submitted("sleeping", f"echo hello; {WAIT}")
    submitted("sleeping", f"echo hello; {WAIT}")

    eventually(lambda: any(pod_failure(pod) for pod in pods(cluster, recorder, failing)))
    recorder.during("report")
    assert report_of(cluster, failing).cause is not None

    eventually(lambda: any((pod.get("status") or {}).get("phase") == "Running" for pod in pods(cluster, recorder, sleeping)))
    recorder.during("wait")
    deferred = WatchedPods().open("connection", cluster, SPACE, name_of(sleeping))
    eventually(lambda: ("wait", f"watch pods in the namespace {SPACE}") in recorder.made)
    deferred.close()
    recorder.during("logs")
    lines = follow_logs(cluster, sleeping)
    assert next(lines).text == "hello"
    lines.close()  # type: ignore[attr-defined]

    recorder.during("cancel")
    assert cancel_owned_job(cluster, sleeping, CancelPolicy.suspend, timeout_seconds=30).endswith("is set to false")
    recorder.during("resume")
    assert submitted("sleeping", f"echo hello; {WAIT}")["spec"]["suspend"] is False
    recorder.during("cancel")
    assert cancel_owned_job(cluster, sleeping, CancelPolicy.delete, timeout_seconds=30).startswith("it is deleted"), (
        "pods may take a while"
    )

    recorder.during("")
    cluster.create(queues_map("queues: [{name: q, quota: {cpu: 0}}]"))
    recorder.during("submit with a workspace")
    new = "pvc://new?size=1Gi&class=fast&retain=delete"
    with_volume = train_request(runtime="trl-sft", workspace=new, queue_name="q", dataset_uri="hf://a/b", model_uri="hf://a/b")
    submit_or_adopt(Submission(cluster, with_volume, Identity("o", "r", "volume"), SPACE))

    def another_in_this_moment(_cluster: Any, wanted: Any, _owners: Any) -> None:
        annotations = {**annotations_of(wanted), names.OWNER_ANNOTATION: "other/run/train"}
        metadata = {**wanted["metadata"], "name": "other", "annotations": annotations}
        cluster.create({**wanted, "metadata": metadata})

    with monkeypatch.context() as patched:
        patched.setattr("trainwright.jobs.submit.creation.check_holder", another_in_this_moment)
        with pytest.raises(RunFolderTaken, match="was deleted"):
            submit_or_adopt(Submission(cluster, with_volume, Identity("o", "contested", "volume"), SPACE))

    recorder.during("submit with code")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print('hello')\n")
    with_code = train_request(code=str(tmp_path / "code"), command=["train.py"])
    submit_or_adopt(Submission(cluster, with_code, Identity("o", "r", "code"), SPACE))

    recorder.during("")
    waited = submitted("waited", WAIT)
    recorder.during("wait")
    looked_at = ("wait", f"get {JOBSET.resource} in the namespace {SPACE}")

    def delete_while_it_is_waited_for() -> None:
        eventually(lambda: looked_at in recorder.made)
        connect(kubeconfig).delete(TRAINJOB, name_of(waited), SPACE)

    ender = threading.Thread(target=delete_while_it_is_waited_for)
    ender.start()
    with pytest.raises(TrainJobDeleted):
        wait_for(cluster, waited)
    ender.join()

    unasked = {(act, str(call.permission(SPACE))) for call in CALLS if call.kind in NOT_EMBEDDED for act in call.operations}
    table = {(act, str(call.permission(SPACE))) for call in CALLS for act in call.operations}
    other = {
        ("wait", f"delete {TRAINJOB.resource} in the namespace {SPACE}"),  # the test's own
        ("submit", "get configmaps in the namespace kubeflow-system"),  # the queues of an embedded cluster
    }

    own = {"submit with a workspace": ("claims", "storage", "delete"), "submit with code": ("configmaps",)}

    def submitting(act: str, right: str) -> bool:
        """A step that is run again is submitted, whatever becomes of it then; so is one with a workspace or with code."""
        if act in own:
            return not any(word in right for word in own[act])
        return act == "resume" and not right.startswith("patch")

    made = {("submit" if submitting(act, right) else act, right) for act, right in recorder.made}
    assert made - other <= table
    assert table - made <= unasked


@pytest.mark.parametrize(("kind", "name"), [(EVENT, "EVENT"), (JOB, "JOB"), (LEASE, "LEASE")])
def test_calls_that_the_embedded_cluster_does_not_see_are_made_somewhere(kind: Kind, name: str) -> None:
    folders = (Path(trainwright.__file__).parent / folder for folder in ("jobs", "submission", "cli", "steps"))
    source = "\n".join(path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    for call in {*CALLS, *JOBSET_MODE_CALLS}:
        if call.kind == kind:
            made = rf'"kind": {name}.kind' if call.verb == "create" else rf"\.{call.verb}\(\s*{name}\b"
            assert re.search(made, source), f"nothing does {call.permission(SPACE)}"


def pods(cluster: JobsClient, recorder: Recorder, job: Any) -> list[Any]:
    recorder.during("")
    return cluster.list(POD, SPACE, label_selector=f"jobset.sigs.k8s.io/jobset-name={name_of(job)}").items


@pytest.mark.medium
@pytest.mark.parametrize(
    ("file", "calls", "others"),
    [
        ("rbac.yaml", CALLS, {"list nodes"}),
        ("rbac-jobset.yaml", JOBSET_MODE_CALLS, {"list nodes", "create secrets", "get secrets"}),
        ("rbac-jobset-mpi-flux.yaml", JOBSET_MODE_CALLS, {"list nodes", "get secrets"}),
    ],
)
def test_the_role_grants_the_table_and_nothing_else(file: str, calls: tuple[ApiCall, ...], others: set[str]) -> None:
    rbac = Rbac(list(yaml.safe_load_all((Path(__file__).parents[2] / "deploy" / file).read_text("utf-8"))))
    assert rbac.allows("kubeflow:pipeline-runner", READ_WORKFLOW.permission("kubeflow")), (
        "to warn of a run without an exit handler"
    )
    refused = {call for call in calls if not rbac.allows("kubeflow:pipeline-runner", call.permission("kubeflow"), call.name)}
    assert {str(call.permission("")) for call in refused} == others, "nodes are looked at where that is allowed"
    assert rbac.granted() == rbac.used
