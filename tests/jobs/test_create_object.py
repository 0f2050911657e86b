"""One object of a manifest is created once, whatever becomes of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import AlreadyExists, ApiError, Forbidden, NotFound, ServiceUnavailable, TooManyRequests
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of, uid_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.submit.create_object import LostAnswer, create_object, is_stored_form

pytestmark = pytest.mark.medium

SENT = {
    "apiVersion": TRAINJOB.api_version,
    "kind": TRAINJOB.kind,
    "metadata": {"name": "job", "namespace": "default", "labels": {"team": "x"}},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
}
LOST, CUT = "lost", "cut before it arrived"


class Scripted(DelegatingCluster):
    """The cluster, whose creates meet these faults in turn; `before` acts before each."""

    def __init__(self, cluster: EmbeddedCluster, *faults: ApiError | str, before: Callable[[], None] = lambda: None) -> None:
        super().__init__(cluster)
        self._faults, self._before = list(faults), before
        self.creates = 0

    def create(self, obj: Any, **options: Any) -> Any:
        self._before()
        self.creates += 1
        fault = self._faults.pop(0) if self._faults else None
        if isinstance(fault, ApiError):
            raise fault
        if fault == CUT:
            raise ServiceUnavailable("cannot reach it")
        made = self._cluster.create(obj, **options)
        if fault == LOST:
            raise ServiceUnavailable("cannot reach it")
        return made


def create(cluster: Any, obj: Any = SENT, **options: Any) -> Any:
    return create_object(cluster, obj, **options)


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (TooManyRequests("slowly", retry_after=0.1),),
        (ServiceUnavailable("later"),),
        (CUT,),
        (LOST,),
        (LOST, CUT),
        (CUT, LOST),
    ],
)
def test_a_fault_that_passes_leaves_one_object(cluster: EmbeddedCluster, faults: tuple[Any, ...]) -> None:
    made = create(Scripted(cluster, *faults))
    assert [uid_of(job) for job in cluster.list(TRAINJOB).items] == [uid_of(made)]


def test_create_refuses_an_object_that_existed_before(cluster: EmbeddedCluster) -> None:
    cluster.create(SENT)
    for faults in ((), (CUT,), (TooManyRequests("slowly", retry_after=0.1),)):
        with pytest.raises(AlreadyExists):
            create(Scripted(cluster, *faults))


def test_another_object_that_came_in_between_is_not_taken_for_the_own(cluster: EmbeddedCluster) -> None:
    other = {**SENT, "spec": {**SENT["spec"], "trainer": {"numNodes": 3}}}  # type: ignore[dict-item]
    scripted = Scripted(cluster, CUT)
    scripted._before = lambda: cluster.create(other) if scripted.creates else None
    with pytest.raises(LostAnswer, match="with other content than was sent"):
        create(scripted)


def test_without_a_lost_answer_an_object_that_came_in_between_is_anothers(cluster: EmbeddedCluster) -> None:
    scripted = Scripted(cluster, TooManyRequests("slowly", retry_after=0.1))
    scripted._before = lambda: cluster.create(SENT) if scripted.creates else None
    with pytest.raises(AlreadyExists) as raised:
        create(scripted)
    assert not isinstance(raised.value, LostAnswer)


def test_an_object_whose_answers_are_all_lost_is_found_at_the_end(cluster: EmbeddedCluster) -> None:
    class Deaf(Scripted):
        def create(self, obj: Any, **options: Any) -> Any:
            try:
                return super().create(obj, **options)
            except AlreadyExists:
                raise ServiceUnavailable("cannot reach it") from None

    made = create(Deaf(cluster, *[LOST] * 99), retry_seconds=0.5)
    assert uid_of(made) == uid_of(cluster.get(TRAINJOB, "job", "default"))


def test_whether_it_was_created_is_said_to_be_unknown_where_it_is(cluster: EmbeddedCluster) -> None:
    class Dead(Scripted):
        def get(self, *_: Any) -> Any:
            if self.creates:
                raise ServiceUnavailable("cannot reach it")
            raise NotFound("not there")

    with pytest.raises(ServiceUnavailable, match="TrainJob default/job may have been created: check before you submit it again"):
        create(Dead(cluster, *[LOST] * 99), retry_seconds=0.5)


def test_an_object_that_never_arrived_is_an_unreachable_cluster(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ServiceUnavailable) as raised:
        create(Scripted(cluster, *[CUT] * 99), retry_seconds=0.5)
    assert raised.value.message == "cannot reach it"


def test_without_permission_to_read_an_own_object_is_said_to_be_probable(cluster: EmbeddedCluster) -> None:
    class WriteOnly(Scripted):
        def get(self, *_: Any) -> Any:
            raise Forbidden("cannot get")

    with pytest.raises(LostAnswer, match="so it was probably created by it, but cannot get"):
        create(WriteOnly(cluster, LOST))
    cluster.delete(TRAINJOB, "job", "default")
    assert name_of(create(WriteOnly(cluster))) == "job"


def test_a_generated_name_is_the_same_for_every_try(cluster: EmbeddedCluster) -> None:
    made = create(Scripted(cluster, LOST, CUT), {**SENT, "metadata": {"generateName": "job-", "namespace": "default"}})
    assert [name_of(job) for job in cluster.list(TRAINJOB).items] == [name_of(made)]
    assert len(name_of(made)) == len("job-") + 5
    assert made["metadata"]["generateName"] == "job-"


def test_a_dry_run_creates_nothing_and_looks_for_nothing(cluster: EmbeddedCluster) -> None:
    scripted = Scripted(cluster, CUT)
    assert uid_of(create(scripted, dry_run=True))
    assert not cluster.list(TRAINJOB).items
    cluster.create(SENT)
    with pytest.raises(AlreadyExists):
        create(Scripted(cluster, CUT), dry_run=True)


@pytest.mark.parametrize(
    ("stored", "sent", "matches"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}, True),
        ({"cpu": "1"}, {"cpu": 1}, True),
        ({"cpu": "2"}, {"cpu": "1000m"}, False),
        ({}, {"a": None, "b": [], "c": {}}, True),
        ({"suspend": True}, {"suspend": False}, True),
        ({"a": "text"}, {"a": "other"}, False),
        ({"a": True}, {"a": "true"}, False),
    ],
)
def test_stored_form_may_add_fields_and_normalize_quantities(stored: Any, sent: Any, matches: bool) -> None:
    def obj(spec: Any) -> Any:
        return {**SENT, "spec": spec}

    assert is_stored_form(obj(stored), obj(sent)) is matches
