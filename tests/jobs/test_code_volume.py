"""Packed code on the cluster: ConfigMaps before the job, tied to it after, mounted by its training containers."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from support.jobset_mode_cluster import Inner, inner  # noqa: F401  a fixture
from support.refusing_cluster import BeforeRequests, refusing

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CONFIG_MAP, JOBSET, TRAINJOB
from trainwright.api.objects import annotations_of, labels_of, name_of, named, owners_of, uid_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainJobNameTaken, TrainRequest, submit_or_adopt
from trainwright.jobs.code.code_package import pack_code
from trainwright.jobs.submit.owned_objects import set_code_owner
from trainwright.submission.jobset_mode import JobSetCluster

STEP = Identity("kfp", "run", "train")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)")
    return tmp_path / "code"


@pytest.fixture
def wanted(folder: Path) -> TrainRequest:
    return train_request(code=str(folder), command=["train.py"])


def maps(cluster: Any) -> list[dict[str, Any]]:
    found = [one for one in cluster.list(CONFIG_MAP, "default").items if "-code-" in name_of(one)]
    return sorted(found, key=name_of)


def submit(cluster: Any, request: TrainRequest, step: Identity = STEP) -> Any:
    return submit_or_adopt(Submission(cluster, request, step, "default"))


def test_code_is_there_before_its_job_and_goes_with_it(cluster: EmbeddedCluster, wanted: TrainRequest) -> None:
    calls: list[tuple[str, str]] = []
    made = submit(BeforeRequests(cluster, lambda *call: calls.append(call)), wanted)
    written = [call for call in calls if call[0] in ("create", "patch")]
    assert written == [("create", "ConfigMap"), ("create", "TrainJob"), ("patch", "ConfigMap")]
    code = pack_code(wanted.code)
    (config_map,) = maps(cluster)
    assert name_of(config_map) == f"{made.name}-code-{code.digest[:8]}-0"
    assert base64.b64decode(config_map["binaryData"]["part-000"]) == code.parts[0]
    assert config_map["immutable"] is True
    assert [(owner["kind"], owner["name"], owner["uid"]) for owner in owners_of(config_map)] == [
        ("TrainJob", made.name, uid_of(made.trainjob))
    ]
    assert labels_of(config_map) == labels_of(made.trainjob)
    assert annotations_of(made.trainjob)["trainwright.dev/code"] == f"{wanted.code} sha256:{code.digest}"
    admit(made.trainjob, context=AdmissionContext(strictness="Strict"))


@pytest.mark.parametrize(
    ("verb", "kind"), [("create", "ConfigMap"), ("create", "TrainJob"), ("patch", "ConfigMap"), ("get", "ConfigMap")]
)
def test_a_try_that_is_killed_anywhere_is_repaired(cluster: EmbeddedCluster, wanted: TrainRequest, verb: str, kind: str) -> None:
    def interrupt(*request: str) -> None:
        if request == (verb, kind):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(BeforeRequests(cluster, interrupt), wanted)
    made = submit(cluster, wanted)
    (job,) = cluster.list(TRAINJOB, "default").items
    assert [owner["uid"] for one in maps(cluster) for owner in owners_of(one)] == [uid_of(job)] == [uid_of(made.trainjob)]


def test_changed_code_is_another_request(cluster: EmbeddedCluster, wanted: TrainRequest, folder: Path) -> None:
    submit(cluster, wanted)
    (folder / "train.py").write_text("print(2)")
    with pytest.raises(TrainJobNameTaken, match="was created from another request"):
        submit(cluster, wanted)


def test_collected_code_is_created_again(cluster: EmbeddedCluster, wanted: TrainRequest) -> None:
    made = submit(cluster, wanted)
    (before,) = maps(cluster)
    cluster.delete(CONFIG_MAP, name_of(before), "default")
    set_code_owner(cluster, made.trainjob, pack_code(wanted.code))
    (after,) = maps(cluster)
    assert after["binaryData"] == before["binaryData"]
    assert owners_of(after)[0]["uid"] == uid_of(made.trainjob)


def test_without_the_right_to_create_it_says_so_before_there_is_a_job(cluster: EmbeddedCluster, wanted: TrainRequest) -> None:
    with pytest.raises(
        Forbidden, match=r"code: its ConfigMaps cannot be created: not allowed; grant create, get and patch on config"
    ):
        submit(refusing(cluster, "create", kinds=[CONFIG_MAP], error=Forbidden("not allowed")), wanted)
    assert cluster.list(TRAINJOB, "default").items == []


def test_in_jobset_mode_it_goes_with_the_jobset(inner: Inner, wanted: TrainRequest) -> None:  # noqa: F811
    cluster = JobSetCluster(inner)
    made = submit(cluster, wanted)
    assert inner.made.index("ConfigMap") < inner.made.index("JobSet")
    (config_map,) = maps(inner)
    jobset = inner.get(JOBSET, made.name, "default")
    assert [(owner["kind"], owner["uid"]) for owner in owners_of(config_map)] == [("JobSet", uid_of(jobset))]
    (job,) = jobset["spec"]["replicatedJobs"]
    assert named(job["template"]["spec"]["template"]["spec"]["volumes"], "trainwright-code") is not None
    before = maps(inner)
    assert submit(cluster, wanted).adopted
    assert maps(inner) == before
