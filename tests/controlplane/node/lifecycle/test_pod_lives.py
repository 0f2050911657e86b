"""Whole lives of pods, decided step by step: some by example, and what holds for all of them as properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_states import NOW
from pod_model import (
    LEAST_GRACE,
    ContainerPlan,
    PodModel,
    RunPlan,
    init_plan,
    main_plan,
    renamed,
    sidecar_plan,
)

from trainwright.controlplane.node.lifecycle.container_state import Role

FAILS, FOREVER, DEAF = RunPlan(code=1), RunPlan(lasts=None), RunPlan(lasts=None, after_term=None)


def statuses(model: PodModel) -> dict[str, Any]:
    status = model.pod["status"]
    return {shown["name"]: shown for shown in [*status.get("initContainerStatuses", []), *status["containerStatuses"]]}


def played(model: PodModel, seconds: float = 4000) -> str:
    """The phase of a pod that has ended."""
    assert model.play(seconds), "it has not ended"
    return str(model.pod["status"]["phase"])


def test_init_containers_are_tried_again_and_each_waits_for_the_one_before() -> None:
    plans = [init_plan(FAILS, FAILS, RunPlan()), init_plan(name="j"), main_plan()]
    model = PodModel("OnFailure", plans)
    assert played(model) == "Succeeded"
    assert model.launches == [("i", 0), ("i", 1), ("i", 2), ("j", 0), ("m", 0)]
    assert statuses(model)["i"]["restartCount"] == 2
    assert model.ended_at is not None
    assert 14 < model.ended_at - NOW < 17, "five runs of a second, and ten seconds of back-off"


def test_a_failed_init_container_ends_a_pod_that_is_never_restarted() -> None:
    model = PodModel("Never", [sidecar_plan(), init_plan(FAILS), init_plan(name="j"), main_plan()])
    assert played(model) == "Failed"
    assert model.launches == [("s", 0), ("i", 0)]
    assert statuses(model)["m"]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_sidecar_that_crashes_is_started_again_until_the_main_container_has_ended() -> None:
    model = PodModel("Never", [sidecar_plan(FAILS), main_plan(RunPlan(lasts=15))])
    assert played(model) == "Succeeded"
    assert [attempt for name, attempt in model.launches if name == "s"] == [0, 1, 2]
    assert model.ended_at is not None
    assert model.ended_at - NOW == pytest.approx(15.1, abs=0.2)


def test_main_containers_wait_for_the_startup_probe_of_a_sidecar() -> None:
    model = PodModel("Never", [sidecar_plan(startup=20), main_plan()])
    assert played(model) == "Succeeded"
    assert model.ended_at is not None
    assert model.ended_at - NOW > 20
    assert model.stops == ["s"]


def test_sidecars_stop_in_reverse_and_have_only_what_is_left_of_the_grace() -> None:
    plans = [sidecar_plan(DEAF, name="s"), sidecar_plan(DEAF, name="t"), main_plan(DEAF)]
    model = PodModel("Never", plans, deleted_after=5, terminationGracePeriodSeconds=10)
    assert played(model) == "Failed"
    assert model.stops == ["m"], "for the others the grace was over"
    assert model.ended_at is not None
    assert model.ended_at - NOW == pytest.approx(5 + 10 + LEAST_GRACE, abs=1.1)


def test_sidecars_stop_one_after_the_other() -> None:
    slow = RunPlan(lasts=None, code=0, after_term=1)
    model = PodModel("Never", [sidecar_plan(slow, name="s"), sidecar_plan(slow, name="t"), main_plan(slow)], deleted_after=5)
    played(model)
    assert model.stops == ["m", "t", "s"]
    assert model.ended_at is not None
    assert model.ended_at - NOW == pytest.approx(5 + 3)


def test_a_pod_that_is_deleted_before_its_containers_start() -> None:
    model = PodModel("Always", [init_plan(FOREVER), main_plan()], deleted_after=0)
    assert played(model) == "Failed"
    assert model.launches == []
    assert statuses(model)["i"]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert statuses(model)["m"]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_pod_that_is_deleted_while_it_initializes() -> None:
    model = PodModel("Always", [init_plan(RunPlan(lasts=None, code=143)), init_plan(name="j"), main_plan()], deleted_after=3)
    assert played(model) == "Failed"
    assert statuses(model)["i"]["state"]["terminated"]["exitCode"] == 143
    assert "waiting" in statuses(model)["j"]["state"]


def test_a_pod_that_is_deleted_in_its_back_off_shows_how_its_containers_ended() -> None:
    model = PodModel("Always", [main_plan(RunPlan(code=3))], deleted_after=8)
    assert played(model) == "Failed"
    shown = statuses(model)["m"]
    assert (shown["state"]["terminated"]["exitCode"], shown["lastState"]["terminated"]["exitCode"]) == (3, 3)
    assert shown["restartCount"] == 1


def test_a_pod_past_its_deadline_is_stopped_with_its_grace() -> None:
    model = PodModel("Always", [main_plan(DEAF)], activeDeadlineSeconds=20, terminationGracePeriodSeconds=5)
    assert played(model) == "Failed"
    assert model.pod["status"]["reason"] == "DeadlineExceeded"
    assert model.ended_at is not None
    assert model.ended_at - NOW == pytest.approx(25, abs=0.1)
    assert statuses(model)["m"]["state"]["terminated"]["exitCode"] == 137


def test_a_failing_liveness_probe_restarts_at_once_until_the_back_off_has_grown() -> None:
    sick = RunPlan(lasts=None, code=143, probe_fails=30)
    model = PodModel("Always", [main_plan(sick)])
    assert not model.play(125)
    assert len(model.launches) == 5, "replaced each half a minute"
    assert not model.play(185)
    assert len(model.launches) == 5, "the fifth run was shorter than its back-off of 40 seconds"
    assert statuses(model)["m"]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert not model.play(195)
    assert statuses(model)["m"]["restartCount"] == 5


def test_a_failing_probe_ends_a_pod_that_is_never_restarted() -> None:
    model = PodModel("Never", [sidecar_plan(), main_plan(RunPlan(lasts=None, code=143, probe_fails=30))])
    assert played(model) == "Failed"
    assert model.launches == [("s", 0), ("m", 0)]


def test_a_container_that_can_not_start_waits_like_one_that_fails() -> None:
    model = PodModel("OnFailure", [main_plan(RunPlan(cannot_start=True))])
    assert not model.play(25)
    assert [attempt for _, attempt in model.launches] == [0, 1, 2]
    assert statuses(model)["m"]["state"]["waiting"]["reason"] in ("RunContainerError", "CrashLoopBackOff")


SECONDS = st.sampled_from([0.1, 1.0, 7.0, 30.0, 700.0])
CODES = st.sampled_from([0, 0, 1, 42, 137])


def run_plans(*, is_endless: bool = False) -> st.SearchStrategy[RunPlan]:
    return st.builds(
        RunPlan,
        lasts=st.none() | SECONDS if is_endless else SECONDS,
        code=CODES,
        after_term=st.none() | st.sampled_from([0.1, 1.0, 5.0]),
        probe_fails=st.none() | SECONDS,
        cannot_start=st.sampled_from([False] * 9 + [True]),
    )


def containers(role: Role, **spec: Any) -> st.SearchStrategy[ContainerPlan]:
    runs = run_plans(is_endless=role is Role.SIDECAR)
    if role is Role.INIT:  # they have no probes
        runs = runs.map(lambda run: RunPlan(run.lasts, run.code, run.after_term, None, run.cannot_start))
    return st.builds(
        ContainerPlan,
        name=st.just(role.value[0]),
        role=st.just(role),
        runs=st.lists(runs, min_size=1, max_size=4).map(tuple),
        startup=st.sampled_from([0.0, 0.0, 5.0]) if role is not Role.INIT else st.just(0.0),
        spec=st.fixed_dictionaries({}, optional=spec),
    )


OWN_POLICY = {
    "restartPolicy": st.sampled_from(["Always", "OnFailure", "Never"]),
    "restartPolicyRules": st.just([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42, 0]}}]),
}
FIRST = st.lists(containers(Role.INIT) | containers(Role.SIDECAR), max_size=3)
POD_SPEC = st.fixed_dictionaries(
    {"terminationGracePeriodSeconds": st.sampled_from([0, 1, 5, 30])},
    optional={"activeDeadlineSeconds": st.sampled_from([1, 10, 500])},
)


@pytest.mark.medium
@given(first=FIRST, mains=st.lists(containers(Role.MAIN), min_size=1, max_size=3), spec=POD_SPEC, deleted=st.none() | SECONDS)
def test_property_a_pod_that_is_never_restarted_ends_and_starts_nothing_twice(
    first: list[ContainerPlan], mains: list[ContainerPlan], spec: dict[str, Any], deleted: float | None
) -> None:
    plans = renamed([*first, *mains])
    if any(plan.role is Role.SIDECAR and not _starts(plan) for plan in plans) and deleted is None:
        deleted = 1000.0  # a sidecar that never gets ready holds its pod up for ever
    model = PodModel("Never", plans, deleted_after=deleted, **spec)
    assert played(model, 20_000) in ("Succeeded", "Failed")
    roles = {plan.name: plan.role for plan in plans}
    assert not [launch for launch in model.launches if launch[1] and roles[launch[0]] is not Role.SIDECAR]


@pytest.mark.medium
@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    first=st.lists(containers(Role.INIT, **OWN_POLICY) | containers(Role.SIDECAR), max_size=3),
    mains=st.lists(containers(Role.MAIN, **OWN_POLICY), min_size=1, max_size=3),
    spec=POD_SPEC,
    deleted=SECONDS,
)
def test_property_a_deleted_pod_ends_within_its_grace(
    policy: str, first: list[ContainerPlan], mains: list[ContainerPlan], spec: dict[str, Any], deleted: float
) -> None:
    plans = renamed([*first, *mains])
    model = PodModel(policy, plans, deleted_after=deleted, **spec)
    played(model)
    assert model.ended_at is not None
    grace = max(spec["terminationGracePeriodSeconds"], LEAST_GRACE) + 1
    assert model.ended_at <= NOW + deleted + grace + LEAST_GRACE


@pytest.mark.medium
@given(
    policy=st.sampled_from(["Always", "OnFailure"]),
    first=FIRST,
    mains=st.lists(containers(Role.MAIN, **OWN_POLICY), min_size=1, max_size=3),
)
def test_property_restarts_go_on_without_a_deadlock(policy: str, first: list[ContainerPlan], mains: list[ContainerPlan]) -> None:
    plans = renamed([*first, *mains])
    model = PodModel(policy, plans)
    if not model.play(3000):
        status = model.pod["status"]
        assert status["phase"] in ("Pending", "Running")
        lasting = [plan for plan in plans if plan.role is Role.SIDECAR]
        repeated = [name for name, attempt in model.launches if attempt]
        assert repeated or lasting, "who is not done is started again"


def _starts(plan: ContainerPlan) -> bool:
    """Whether some run of a sidecar gets over its startup probe, and stays there long enough to be seen."""
    last = plan.runs[-1]
    lives = min(seconds for seconds in (last.lasts, last.probe_fails, 1e9) if seconds is not None)
    return not last.cannot_start and lives > plan.startup
