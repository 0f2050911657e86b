"""Which mode a cluster calls for, answered by a stub: what is served, who renews a Lease, and what was asked for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from serving_cluster import BOTH, EITHER, ONLY_JOBSET, TRAINER, Serving, aged, lease

from trainwright.api.errors import Forbidden, NotFound
from trainwright.cluster import NoCluster
from trainwright.submission import connect as submission
from trainwright.submission.connect import NoTrainingApi, connect_for_jobs, for_jobs
from trainwright.submission.controller_lease import OWN_LEASE, RENEWAL_SECONDS, LeaseState, controller_state
from trainwright.submission.jobs_client import VARIABLE, Mode

SEEN = {"metadata": {"name": "j"}, "status": {"jobsStatus": [{"name": "node"}]}}
UNSEEN = {"metadata": {"name": "j"}}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits; what would have been waited is noted."""
    waited: list[float] = []
    monkeypatch.setattr(submission, "controller_state", lambda *a: controller_state(*a, sleep=waited.append))
    monkeypatch.delenv(VARIABLE, raising=False)
    return waited


@pytest.mark.parametrize(
    ("cluster", "mode", "why", "doubt"),
    [
        (Serving(ONLY_JOBSET), "jobset", "trainer.kubeflow.org is not served", ""),
        (Serving({**BOTH, TRAINER: ("clustertrainingruntimes",)}), "jobset", "is not served", ""),
        (Serving(BOTH, [lease(3)]), "trainjob", "Lease kubeflow-system/trainer.kubeflow.org is renewed", ""),
        (Serving(BOTH, [lease(3)], may_create=("jobsets",)), "jobset", "may create JobSets, but no TrainJobs", ""),
        (Serving(BOTH, [lease(3)], may_create=EITHER), "trainjob", "is renewed", ""),
        (Serving(BOTH, [lease(3)], may_create=()), "trainjob", "is renewed", ""),  # nobody is allowed anything for seconds
        (Serving(BOTH, [lease(3)], may_create=Forbidden("no reviews")), "trainjob", "is renewed", ""),
        (Serving(BOTH, [lease(3, "trainwright-controller")]), "trainjob", "trainwright-controller is renewed", ""),
        (Serving(BOTH, [lease(3, "trainwright-controller-team")]), "trainjob", "-team is renewed", ""),
        (Serving(BOTH, [lease(3, "trainwright-controller-others")]), "jobset", "there is no Lease", "not processed"),
        (Serving(BOTH, [lease(3600)]), "jobset", "was last renewed at", "not processed"),
        (
            Serving(BOTH, [lease(3600)], may_create=("trainjobs",)),
            "trainjob",
            "may not create JobSets",
            "controller of Trainer is away",
        ),
        (Serving(BOTH, [lease(34)]), "trainjob", "was last renewed 34 s ago, so its controller may be away", ""),
        (Serving(BOTH, [lease(3600)], [SEEN]), "jobset", "was last renewed at", "not processed"),
        (Serving(BOTH, [lease(3, holder="")]), "jobset", "was last renewed at", "not processed"),
        (Serving(BOTH, [lease(3600), lease(1, "trainwright-controller")]), "trainjob", "trainwright-controller is renewed", ""),
        (Serving({TRAINER: ("trainjobs",)}, [lease(3600)]), "trainjob", "last renewed", "would not start"),
        (Serving(BOTH), "jobset", "there is no Lease", "not processed"),
        (Serving(BOTH, [], [UNSEEN]), "jobset", "there is no Lease", "not processed"),
        (Serving(BOTH, [], [SEEN]), "trainjob", "TrainJobs have a status", ""),
        (Serving(BOTH, Forbidden("no"), [SEEN]), "trainjob", "cannot be read: a permission is missing", ""),
        (Serving(BOTH, Forbidden("no"), [UNSEEN]), "trainjob", "cannot be read: a permission is missing", ""),
        (Serving(BOTH, Forbidden("no"), Forbidden("no")), "trainjob", "cannot be read: a permission is missing", ""),
        (Serving({TRAINER: ("trainjobs",)}, Forbidden("no")), "trainjob", "cannot be read: a permission is missing", ""),
        (Serving(BOTH, [], version="v1.33.0+trainwright"), "trainjob", "embedded control plane", ""),
    ],
)
def test_auto_goes_by_what_is_there(cluster: Any, mode: str, why: str, doubt: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    chosen = for_jobs(cluster)
    assert chosen.mode == mode
    assert why in chosen.reason
    assert doubt in chosen.warning
    assert bool(doubt) == bool(chosen.warning)
    assert f"mode={mode}" in caplog.text
    assert why in caplog.text
    assert bool([r for r in caplog.records if r.levelno == logging.WARNING]) == bool(doubt)
    others = [] if chosen.other is None else [chosen.other.mode]
    assert others == ([({"trainjob", "jobset"} - {mode}).pop()] if "trainjobs" in cluster._served.get(TRAINER, ()) else [])


def test_a_lease_of_another_clock_is_seen_to_be_renewed(pauses: list[float]) -> None:
    cluster: Any = Serving(BOTH)
    for age in (3600, -3600):
        held = lease(age)
        cluster._leases = [held]
        assert controller_state(cluster, "team", sleep=pauses.append).lease is LeaseState.gone

        def renew(seconds: float, held: Any = held, age: float = age) -> None:
            pauses.append(seconds)
            held["spec"]["renewTime"] = aged(lease(age - 2))["spec"]["renewTime"]

        assert controller_state(cluster, "team", sleep=renew).lease is LeaseState.alive
    assert set(pauses) == {RENEWAL_SECONDS}


def leases_asked(cluster: Any) -> list[str]:
    return [asked for asked in cluster.asked if " leases " in asked]


def test_a_healthy_cluster_is_asked_once_for_the_lease_that_the_role_grants() -> None:
    cluster: Any = Serving(BOTH, [lease(3)])
    for_jobs(cluster)
    assert leases_asked(cluster) == ["get leases kubeflow-system/trainer.kubeflow.org"]


def test_who_may_not_read_it_asks_once_and_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    cluster: Any = Serving(BOTH, Forbidden("no"))
    for _ in range(3):
        assert for_jobs(cluster).mode is Mode.trainjob
        assert controller_state(cluster, "team").lease is LeaseState.unknown
    assert leases_asked(cluster) == ["get leases kubeflow-system/trainer.kubeflow.org"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    other: Any = Serving(BOTH, [lease(3600)])
    assert controller_state(other, "team", sleep=lambda _: None).lease is LeaseState.gone, "another connection asks itself"


def test_leases_that_may_not_be_listed_are_asked_for_by_name() -> None:
    cluster: Any = Serving(BOTH)
    given = {("kubeflow-system", "trainer.kubeflow.org"): lease(2)}

    def get(_kind: Any, name: str, namespace: str) -> Any:
        if (namespace, name) in given:
            return aged(given[(namespace, name)])
        raise Forbidden("no") if (namespace, name) in refused else NotFound("no")

    def denied(*_: Any, **__: Any) -> Any:
        raise Forbidden("no")

    cluster.get, cluster.list = get, denied
    refused = {("opendatahub", "trainer.kubeflow.org")}
    assert controller_state(cluster, "team").lease is LeaseState.alive
    given[("kubeflow-system", "trainer.kubeflow.org")]["spec"]["renewTime"] = "nonsense"
    assert controller_state(cluster, "team", sleep=lambda _: None).lease is LeaseState.gone
    given[("trainwright-system", OWN_LEASE)] = lease(2, OWN_LEASE)
    assert controller_state(cluster, "team", sleep=lambda _: None).lease is LeaseState.alive
    given.clear()
    assert controller_state(cluster, "team", sleep=lambda _: None).lease is LeaseState.unknown


def test_cluster_without_training_apis_is_an_error_with_advice() -> None:
    cluster: Any = Serving({})
    with pytest.raises(NoTrainingApi, match=r"serves neither jobsets.*nor trainjobs.*trainwright crds.*embedded") as stored:
        for_jobs(cluster)
    assert isinstance(stored.value, NoCluster)


@pytest.mark.parametrize(("mode", "adapted"), [("jobset", True), ("trainjob", False)])
def test_a_mode_that_is_asked_for_is_taken_whoever_lives(mode: str, adapted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = Serving(BOTH, [lease(3600)])
    for given in (mode, ""):
        chosen = for_jobs(cluster, given)
        assert (chosen.mode is Mode.jobset) is adapted
        assert (chosen.reason, chosen.other) == ("requested", None)
        monkeypatch.setenv(VARIABLE, mode)
    assert not [asked for asked in cluster.asked if "leases" in asked]


def test_embedded_is_a_cluster_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connected: list[Any] = []

    def connect(kubeconfig: Any, **more: Any) -> Any:
        connected.append((kubeconfig, more["embedded"]))
        return Serving(BOTH)

    monkeypatch.setattr(submission, "connect", connect)
    monkeypatch.setattr(submission, "start_embedded", lambda: tmp_path / "kubeconfig")
    chosen = connect_for_jobs(mode="embedded", namespace="other")
    assert (chosen.mode, chosen.default_namespace) == (Mode.trainjob, "other")
    connect_for_jobs(embedded=tmp_path, mode="embedded")
    assert connected == [(tmp_path / "kubeconfig", None), (None, tmp_path)]
    with pytest.raises(NoCluster, match="use only one of them"):
        connect_for_jobs(tmp_path, mode="embedded")
    monkeypatch.setenv(VARIABLE, "embedded")
    connect_for_jobs(tmp_path)
    connect_for_jobs()
    assert connected[2:] == [(tmp_path, None), (tmp_path / "kubeconfig", None)]
