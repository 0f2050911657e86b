"""The Secret of a step: written once for all tries, owned by the job of the last one, gone when that has ended."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest
from factories import program_request

from trainwright.api.errors import Forbidden, Invalid, NotFound
from trainwright.api.kinds import SECRET, TRAINJOB
from trainwright.api.objects import name_of, owners_of, uid_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainRequest, submit_or_adopt
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobFailed
from trainwright.jobs.submit.submission import StepCredentials, credentials_until_end, secret_name

IDENTITY = Identity("o", "run", "step")
CREDENTIALS = StepCredentials({"AWS_SECRET_ACCESS_KEY": "first", "HF_TOKEN": "token"})


def submitted(cluster: EmbeddedCluster, request: TrainRequest, credentials: StepCredentials = CREDENTIALS) -> Any:
    return submit_or_adopt(Submission(cluster, request, IDENTITY, "default", credentials=credentials)).trainjob


def values(cluster: EmbeddedCluster) -> dict[str, str]:
    data = cluster.get(SECRET, secret_name(IDENTITY), "default")["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def owners(cluster: EmbeddedCluster) -> list[str]:
    return [owner["uid"] for owner in owners_of(cluster.get(SECRET, secret_name(IDENTITY), "default"))]


def test_the_job_owns_it_and_names_no_value(cluster: EmbeddedCluster) -> None:
    job = submitted(cluster, CREDENTIALS.referred_to_by(program_request(), IDENTITY))
    assert values(cluster) == CREDENTIALS.values
    assert owners(cluster) == [uid_of(job)]
    assert "first" not in str(job)
    assert "token" not in repr(CREDENTIALS)


def test_a_retry_renews_its_values(cluster: EmbeddedCluster) -> None:
    job = submitted(cluster, program_request())
    again = submitted(cluster, program_request(), StepCredentials({**CREDENTIALS.values, "AWS_SECRET_ACCESS_KEY": "second"}))
    assert uid_of(again) == uid_of(job)
    assert values(cluster)["AWS_SECRET_ACCESS_KEY"] == "second"


def test_the_next_attempt_owns_it(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    first = submitted(cluster, program_request())
    set_status(first, "Failed")
    second = submitted(cluster, program_request())
    assert owners(cluster) == [uid_of(second)] != [uid_of(first)]


def test_secret_deleted_with_an_earlier_job_is_written_again(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    create = cluster.create

    def create_then_collect(obj: Any, *args: Any, **more: Any) -> Any:
        created = create(obj, *args, **more)
        if obj["kind"] == "TrainJob":
            cluster.delete(SECRET, secret_name(IDENTITY), "default")
        return created

    monkeypatch.setattr(cluster, "create", create_then_collect)
    job = submitted(cluster, program_request())
    assert (values(cluster), owners(cluster)) == (CREDENTIALS.values, [uid_of(job)])


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_secret_is_deleted_when_the_job_ends(cluster: EmbeddedCluster, set_status: Callable[..., Any], ends: str) -> None:
    job = submitted(cluster, program_request())

    def wait() -> None:
        with credentials_until_end(cluster, IDENTITY, "default", CREDENTIALS):
            if ends == "badly":
                raise TrainJobFailed("it failed", job)

    if ends == "badly":
        with pytest.raises(TrainJobFailed):
            wait()
    else:
        wait()
    with pytest.raises(NotFound):
        values(cluster)


def test_secret_stays_with_a_job_that_may_be_resumed(cluster: EmbeddedCluster) -> None:
    submitted(cluster, program_request())
    with pytest.raises(Cancelled), credentials_until_end(cluster, IDENTITY, "default", CREDENTIALS):
        raise Cancelled("SIGTERM")
    assert values(cluster) == CREDENTIALS.values


@pytest.mark.parametrize("ending", ["cancelled", "refused", "interrupted"])
def test_a_submission_that_makes_no_job_leaves_no_secret(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    stop, create = threading.Event(), cluster.create
    errors = {"refused": Invalid("the webhook does not like it"), "interrupted": KeyboardInterrupt()}

    def refuse(obj: Any, *args: Any, **more: Any) -> Any:
        if obj["kind"] == "TrainJob" and ending in errors:
            raise errors[ending]
        return create(obj, *args, **more)

    monkeypatch.setattr(cluster, "create", refuse)
    if ending == "cancelled":
        stop.set()
    with pytest.raises((Cancelled, Invalid, KeyboardInterrupt)):
        submit_or_adopt(Submission(cluster, program_request(), IDENTITY, "default", credentials=CREDENTIALS), stop=stop)
    assert cluster.list(SECRET, "default").items == []


def test_a_job_whose_create_response_was_lost_keeps_its_secret(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    create, get = cluster.create, cluster.get

    def create_and_lose(obj: Any, *args: Any, **more: Any) -> Any:
        created = create(obj, *args, **more)
        if obj["kind"] == "TrainJob":
            raise KeyboardInterrupt
        return created

    monkeypatch.setattr(cluster, "create", create_and_lose)
    with pytest.raises(KeyboardInterrupt):
        submitted(cluster, program_request())
    assert values(cluster) == CREDENTIALS.values
    assert len(cluster.list(TRAINJOB, "default").items) == 1
    assert get(SECRET, secret_name(IDENTITY), "default")


def test_a_secret_of_others_is_not_overwritten(cluster: EmbeddedCluster) -> None:
    own = base64.b64encode(b"of others").decode()
    metadata = {"name": secret_name(IDENTITY), "namespace": "default"}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"AWS_SECRET_ACCESS_KEY": own}})
    with pytest.raises(Invalid, match="exists and is not Trainwright's"):
        submitted(cluster, program_request())
    assert values(cluster) == {"AWS_SECRET_ACCESS_KEY": "of others"}
    assert owners(cluster) == []
    assert cluster.list(TRAINJOB, "default").items == []


def test_without_the_right_no_job_is_made_and_the_error_says_what_to_grant(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = cluster.create

    def refuse(obj: Any, *args: Any, **more: Any) -> Any:
        if obj["kind"] == "Secret":
            raise Forbidden('secrets is forbidden: User "u" cannot create resource "secrets"')
        return create(obj, *args, **more)

    monkeypatch.setattr(cluster, "create", refuse)
    with pytest.raises(
        Forbidden, match=r"grant create, patch and delete on secrets \(`trainwright rbac --credentials`\)"
    ) as raised:
        submitted(cluster, program_request())
    assert "first" not in str(raised.value)
    assert [name_of(job) for job in cluster.list(TRAINJOB, "default").items] == []
