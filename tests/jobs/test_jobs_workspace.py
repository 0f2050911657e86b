"""A workspace as one argument: parsed, its claim looked at or made, and tied to the jobs that it goes with."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from factories import train_request
from hypothesis import given
from hypothesis import strategies as st
from support.refusing_cluster import refusing

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLAIM, STORAGE_CLASS, TRAINJOB
from trainwright.api.objects import annotations_of, labels_of, name_of, owners_of, uid_of
from trainwright.cluster.protocol import Listing
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainRequest, submit_or_adopt
from trainwright.jobs.diagnosis.errors import WorkspaceMismatch
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.submit.workspace_claim import ensure_claim

STEP = Identity("kfp", "run", "train")
NEW = "pvc://new?size=20Gi"


def sft(workspace: str, **fields: Any) -> TrainRequest:
    return train_request(runtime="trl-sft", workspace=workspace, dataset_uri="hf://a/b", model_uri="hf://a/b", **fields)


def claim_of(cluster: EmbeddedCluster, name: str = "new") -> dict[str, Any]:
    return cluster.get(CLAIM, name, "default")


def make_claim(cluster: EmbeddedCluster, *modes: str, size: str = "10Gi", **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    metadata = {"name": "new", "namespace": "default"}
    return cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "size: required for a new claim"),
        ("class=fast", "size: required for a new claim"),
        ("size=", "size: "),
        ("size=large", "size: "),
        ("size=0", "must be greater than zero"),
        ("size=-1Gi", "must be greater than zero"),
        ("size=1Gi&size=2Gi", "contains an option twice"),
        ("size=1Gi&access=ReadOnlyMany", "access: 'ReadOnlyMany': expected ReadWriteOnce, ReadWriteMany, ReadWriteOncePod"),
        ("size=1Gi&retain=", "retain: '': expected keep, delete"),
        ("size=1Gi&class=Fast", "class: 'Fast' is not the name"),
        ("size=1Gi&mode=x", "'mode' is not an option of a new claim; expected size, class, access, retain"),
    ],
)
def test_invalid_claim_options_are_refused(query: str, words: str) -> None:
    with pytest.raises(InvalidSettings, match=f"workspace: .*{words}" if not words.startswith("'") else f"workspace: {words}"):
        sft(f"pvc://new?{query}")


@given(st.text(alphabet="pvc:/?&=size.GiacretndlyRW0123% \n+", max_size=40))
def test_any_text_is_a_workspace_or_a_named_problem(text: str) -> None:
    for candidate in (text, f"pvc://{text}", f"pvc://new?size=1Gi{text}"):
        problem = problem_of(candidate)
        assert not problem or problem.startswith("workspace: ")


def problem_of(uri: str) -> str:
    try:
        parsed = Workspace.parse(uri)
    except ValueError as error:
        return str(error)
    assert ".." not in parsed.path.split("/")
    return ""


@pytest.mark.parametrize(("nodes", "access"), [(None, "ReadWriteOnce"), (1, "ReadWriteOnce"), (2, "ReadWriteMany")])
def test_a_claim_is_made_before_its_job(cluster: EmbeddedCluster, nodes: int | None, access: str) -> None:
    made = submit_or_adopt(Submission(cluster, sft(NEW, num_nodes=nodes), STEP, "default"))
    claim = claim_of(cluster)
    assert claim["spec"]["accessModes"] == [access]
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert "storageClassName" not in claim["spec"]
    assert annotations_of(claim)["trainwright.dev/owner"] == "kfp/run"
    assert labels_of(claim)["app.kubernetes.io/managed-by"] == "trainwright"
    assert owners_of(claim) == []
    assert submit_or_adopt(Submission(cluster, sft(NEW, num_nodes=nodes), STEP, "default")).name == made.name


def test_claim_with_retain_delete_is_owned_by_all_its_jobs(cluster: EmbeddedCluster, set_status: Any) -> None:
    wish = f"{NEW}&retain=delete"
    first = submit_or_adopt(Submission(cluster, sft(wish), STEP, "default"))
    assert [owner["uid"] for owner in owners_of(claim_of(cluster))] == [uid_of(first.trainjob)]
    submit_or_adopt(Submission(cluster, sft(wish), STEP, "default"))
    set_status(first.trainjob, "Failed")
    second = submit_or_adopt(Submission(cluster, sft(wish), STEP, "default"))
    owners = owners_of(claim_of(cluster))
    assert [owner["uid"] for owner in owners] == [uid_of(first.trainjob), uid_of(second.trainjob)]
    assert all(owner["kind"] == "TrainJob" and not owner.get("controller") for owner in owners)


def test_a_crash_between_claim_and_job_and_tie_leaves_what_the_next_try_finds(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dying(*_: Any, **__: Any) -> Any:
        raise Killed

    wish = f"{NEW}&retain=delete"
    for effect in ("submission.jobs_client.JobsClient.submit", "jobs.submit.submit_or_adopt.set_claim_owner"):
        with monkeypatch.context() as patched:
            patched.setattr(f"trainwright.{effect}", dying)
            with pytest.raises(Killed):
                submit_or_adopt(Submission(cluster, sft(wish), STEP, "default"))
        assert owners_of(claim_of(cluster)) == []
    made = submit_or_adopt(Submission(cluster, sft(wish), STEP, "default"))
    assert made.adopted
    assert [owner["uid"] for owner in owners_of(claim_of(cluster))] == [uid_of(made.trainjob)]
    assert len(cluster.list(CLAIM).items) == 1


def test_another_claim_of_that_name_must_be_as_good(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    make_claim(cluster, "ReadWriteOnce", storageClassName="slow")
    wish = "pvc://new?size=20Gi&class=fast&access=ReadWriteMany"
    words = (
        r"was not created by this run: size: it has 10Gi, 20Gi is requested; access: it is ReadWriteOnce, ReadWriteMany is requested; "
        r"class: it is slow, fast is requested"
    )
    with pytest.raises(WorkspaceMismatch, match=words):
        submit_or_adopt(Submission(cluster, sft(wish), STEP, "default"))
    assert cluster.list(TRAINJOB).items == []
    submit_or_adopt(Submission(cluster, sft("pvc://new?size=10240Mi&retain=delete"), STEP, "default"))
    assert owners_of(claim_of(cluster)) == []
    assert "is not deleted with the job" in caplog.text


def test_our_own_claim_is_used_although_the_wish_has_grown(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    submit_or_adopt(Submission(cluster, sft(NEW), STEP, "default"))
    submit_or_adopt(
        Submission(cluster, sft("pvc://new?size=1Ti"), Identity("kfp", "run", "evaluate", subfolder="evaluation"), "default")
    )
    assert "was created by this run before: size: it has 20Gi, 1Ti is requested" in caplog.text


@pytest.mark.parametrize(
    ("modes", "nodes", "words"),
    [
        (("ReadWriteOnce",), 2, "2 nodes share it"),
        (("ReadWriteOncePod",), 2, "num_nodes=1, or keep all pods on one node with a node_selector"),
        (("ReadWriteOnce",), 1, ""),
        (("ReadWriteOnce", "ReadWriteMany"), 2, ""),
        (("ReadOnlyMany",), 1, "it is not writable"),
    ],
)
def test_an_existing_claim_is_looked_at(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, modes: tuple[str, ...], nodes: int, words: str
) -> None:
    make_claim(cluster, *modes)
    submit_or_adopt(Submission(cluster, sft("pvc://new", num_nodes=nodes), STEP, "default"))
    warnings = [record.getMessage() for record in caplog.records if "workspace" in record.getMessage()]
    assert bool(warnings) is bool(words)
    assert words in "".join(warnings)


def test_who_may_not_make_claims_is_told_what_to_grant(cluster: EmbeddedCluster) -> None:
    narrow = refusing(cluster, "create", kinds=[CLAIM])
    with pytest.raises(
        Forbidden, match="does not exist and cannot be created: may not create; grant create on persistentvolumeclaims"
    ):
        submit_or_adopt(Submission(narrow, sft(NEW), STEP, "default"))
    assert cluster.list(TRAINJOB).items == []


def test_who_may_not_tie_keeps_the_claim_with_a_warning(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    narrow = refusing(cluster, "patch", kinds=[CLAIM])
    made = submit_or_adopt(Submission(narrow, sft(f"{NEW}&retain=delete"), STEP, "default"))
    assert f"will not be deleted with TrainJob {made.name}: may not patch" in caplog.text


def test_a_class_that_does_not_exist_is_a_warning_where_classes_are_shown(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_or_adopt(Submission(cluster, sft("pvc://new?size=1Gi&class=fsat"), STEP, "default"))
    assert "StorageClass" not in caplog.text
    assert claim_of(cluster)["spec"]["storageClassName"] == "fsat"
    read, classes = cluster.list, Listing([{"metadata": {"name": "fast"}}, {"metadata": {"name": "slow"}}], "1")

    def showing(kind: Any, *more: Any, **options: Any) -> Listing:
        return classes if kind == STORAGE_CLASS else read(kind, *more, **options)

    monkeypatch.setattr(cluster, "list", showing)
    submit_or_adopt(Submission(cluster, sft("pvc://other?size=1Gi&class=fsat"), Identity("kfp", "run", "other"), "default"))
    assert "the StorageClass 'fsat', which does not exist: pods wait until it does; did you mean fast?" in caplog.text
    submit_or_adopt(Submission(cluster, sft("pvc://third?size=1Gi&class=fast"), Identity("kfp", "run", "third"), "default"))
    assert caplog.text.count("which does not exist") == 1


def test_claim_under_deletion_is_waited_for(cluster: EmbeddedCluster) -> None:
    old, workspace = make_claim(cluster, "ReadWriteOnce"), Workspace.parse(NEW)
    cluster.delete(CLAIM, "new", "default")
    with pytest.raises(WorkspaceMismatch, match="is being deleted") as raised:
        ensure_claim(cluster, workspace, STEP, "default", 1, deletion_wait_seconds=0.05, poll_seconds=0.01)
    assert raised.value.retryable
    going = threading.Timer(0.1, lambda: cluster.patch(CLAIM, "new", {"metadata": {"finalizers": None}}, "default"))
    going.start()
    ensure_claim(cluster, workspace, STEP, "default", 1, poll_seconds=0.01)
    going.join()
    assert uid_of(claim_of(cluster)) != uid_of(old)


@pytest.mark.medium
def test_eight_steps_at_once_make_one_claim(cluster: EmbeddedCluster) -> None:
    together = threading.Barrier(8)

    def submit(number: int) -> str:
        together.wait(10)
        made = submit_or_adopt(
            Submission(
                cluster, sft(f"{NEW}&retain=delete"), Identity("kfp", "run", f"step-{number}", subfolder=str(number)), "default"
            )
        )
        return uid_of(made.trainjob)

    with ThreadPoolExecutor(8) as pool:
        jobs = set(pool.map(submit, range(8)))
    (claim,) = cluster.list(CLAIM).items
    assert {owner["uid"] for owner in owners_of(claim)} == jobs
    assert name_of(claim) == "new"
