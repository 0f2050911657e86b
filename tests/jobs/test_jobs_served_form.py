"""What is sent follows the schema that the cluster serves: Trainer 2.1, 2.2, 2.3, and one that may not be read."""

from __future__ import annotations

import copy
import functools
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from factories import train_request, trainjob
from support.shared_folder import shared_folder

from trainwright.api.errors import Forbidden, Invalid, ServiceUnavailable, Undecodable
from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Deadlines, Identity, Submission, Waiting, submit_or_adopt
from trainwright.jobs.submit.plan import served_form
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import Attempt
from trainwright.submission.jobs_client import DEFINITION, JobsClient, schema_in, served_trainjob

STEP = Identity("o", "r", "s")
FULL = {
    "runtime": "trl-sft",
    "command": [],
    "workspace": "pvc://mine/run",
    "node_selector": {"gpu": "h100"},
    "topology": "exclusive:zone",
    "run_timeout_seconds": 60,
}


class Serving(DelegatingCluster):
    """The cluster with a CRD: as an API server it drops what the schema does not know."""

    def __init__(self, cluster: EmbeddedCluster, definition: Any, readable: Exception | None = None):
        super().__init__(cluster)
        self._definition, self._readable = definition, readable
        self.asked, self.sent = 0, []  # type: ignore[var-annotated]

    @functools.cached_property
    def host(self) -> str:
        return f"https://{uuid.uuid4()}"

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        if kind != DEFINITION:
            return self._cluster.get(kind, name, namespace)
        self.asked += 1
        if self._readable is not None:
            raise self._readable
        return self._definition

    def create(self, obj: dict[str, Any], **options: Any) -> Any:
        self.sent.append(obj)
        kept = copy.deepcopy(obj)
        for path in schema_in(self._definition).unserved(obj["spec"]):  # type: ignore[union-attr]
            kept["spec"].pop(path.split(".")[1])
        shown = copy.deepcopy(kept)
        for old in ("podTemplateOverrides", "labels", "annotations"):  # not of the server's own version
            kept["spec"].pop(old, None)
        return {**self._cluster.create(kept), "spec": shown["spec"]}


@pytest.fixture
def definition() -> Callable[[str], Any]:
    def read(version: str) -> Any:
        path = shared_folder(f"upstream/trainer/crds-v{version}") / "trainer.kubeflow.org_trainjobs.yaml"
        return yaml.load(path.read_text(), yaml.CSafeLoader)

    return read


def submitted(cluster: Any, **fields: Any) -> Any:
    return submit_or_adopt(Submission(cluster, train_request(**{**FULL, **fields}), STEP, "default"))


def test_trainer_2_1_gets_overrides_and_the_client_keeps_the_deadline(cluster: EmbeddedCluster, definition: Any) -> None:
    serving = Serving(cluster, definition("2.1.0"))
    made = submitted(serving)
    spec = serving.sent[0]["spec"]
    assert not {"runtimePatches", "activeDeadlineSeconds"} & set(spec)
    assert spec["annotations"] == {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}
    by_step: dict[str, dict[str, Any]] = {}
    for override in spec["podTemplateOverrides"]:
        by_step.setdefault(override["targetJobs"][0]["name"], {}).update(override["spec"])
    assert set(by_step) == {"dataset-initializer", "model-initializer", "node"}
    assert by_step["node"]["nodeSelector"] == {"gpu": "h100"}
    assert by_step["node"]["volumes"] == [{"name": "initializer", "persistentVolumeClaim": {"claimName": "mine"}}]
    assert made.run_deadline == 60
    for own, kept, expected in ((None, 60, 60), (30, 60, 30), (30, None, 30)):
        waiting = Waiting(WaitSettings(deadlines=Deadlines(run=own)))
        assert Attempt.of(replace(made, run_deadline=kept), waiting).settings.deadlines == Deadlines(run=expected)
    assert submitted(serving).adopted  # the digest is that of the request, whatever the version


@pytest.mark.medium
def test_the_definition_is_asked_for_once(cluster: EmbeddedCluster, definition: Any) -> None:
    serving = Serving(cluster, definition("2.1.0"))
    for run in range(3):
        submit_or_adopt(Submission(serving, train_request(**FULL), Identity("o", str(run), "s"), "default"))
    assert serving.asked == 1


def test_an_answer_of_the_moment_is_not_kept(cluster: EmbeddedCluster, definition: Any) -> None:
    serving = Serving(cluster, definition("2.3.0"), ServiceUnavailable("down"))
    assert served_trainjob(JobsClient(serving)) is None
    serving._readable = None
    assert served_trainjob(JobsClient(serving)) is not None
    assert serving.asked == 2


@pytest.mark.medium
def test_a_job_whose_fields_were_dropped_is_deleted_and_they_are_named(cluster: EmbeddedCluster, definition: Any) -> None:
    serving = Serving(cluster, definition("2.1.0"), Forbidden("no"))
    with pytest.raises(Invalid) as raised:
        submitted(serving)
    assert [problem.field for problem in raised.value.problems] == ["spec.runtimePatches", "spec.activeDeadlineSeconds"]
    assert not cluster.list(TRAINJOB).items


def test_a_patch_of_jobs_cannot_be_said_to_trainer_2_1(definition: Any) -> None:
    jobs = [{"name": "node", "template": {"metadata": {"labels": {"a": "b"}}}}]
    patch = {"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    with pytest.raises(Invalid, match=r"replicatedJobs\[node\].template.metadata: podTemplateOverrides"):
        served_form(trainjob(runtimePatches=[patch]), schema_in(definition("2.1.0")))


@pytest.mark.parametrize("answer", ["refuses it", "drops it"])
def test_a_deadline_that_nobody_asked_for_is_no_obstacle_on_an_unknown_version(cluster: EmbeddedCluster, answer: str) -> None:
    """Without the right to read the CRD, what the server answers is all that is known of its version."""

    class Without(DelegatingCluster):
        default_namespace = "default"

        def create(self, obj: Any, **options: Any) -> Any:
            if obj["kind"] != "TrainJob" or "activeDeadlineSeconds" not in obj["spec"]:
                return super().create(obj, **options)
            if answer == "refuses it":
                raise Undecodable('strict decoding error: unknown field "spec.activeDeadlineSeconds"')
            spec = {name: value for name, value in obj["spec"].items() if name != "activeDeadlineSeconds"}
            return super().create({**obj, "spec": spec}, **options)

        def get(self, kind: Any, name: str, *rest: Any, **options: Any) -> Any:
            if kind == DEFINITION:
                raise Forbidden("customresourcedefinitions may not be read")
            return super().get(kind, name, *rest, **options)

    request = {"runtime": "torch-distributed", "command": ["true"]}
    made = submit_or_adopt(Submission(Without(cluster), train_request(**request), STEP, "default"))
    assert "activeDeadlineSeconds" not in made.trainjob["spec"]
    asked = train_request(**request, run_timeout_seconds=60)
    with pytest.raises((Undecodable, Invalid), match=r"spec\.activeDeadlineSeconds"):
        submit_or_adopt(Submission(Without(cluster), asked, Identity("kfp", "other", "train"), "default"))
