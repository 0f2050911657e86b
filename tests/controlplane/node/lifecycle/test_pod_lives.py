"""Whole lives of pods, decided step by step: some by example, and what holds for all of them as properties."""

from __future__ import annotations

from pathlib import Path
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


TERMS = RunPlan(lasts=None, after_term=1)
SICK = RunPlan(lasts=None, code=143, probe_fails=30)
OWN = {"restartPolicy": "OnFailure"}
GRACE = {"livenessProbe": {"terminationGracePeriodSeconds": 2}, "startupProbe": {"terminationGracePeriodSeconds": 1}}
LIVES: dict[str, tuple[str, list[ContainerPlan], dict[str, Any]]] = {
    "init containers wait for one another and are tried again": (
        "OnFailure", [init_plan(FAILS, FAILS, RunPlan()), init_plan(name="j"), main_plan()], {}),
    "a failed init container takes its sidecar with it": (
        "Never", [sidecar_plan(), init_plan(FAILS), init_plan(name="j"), main_plan()], {}),
    "a sidecar that crashes is started again until the main container has ended": (
        "Never", [sidecar_plan(FAILS), main_plan(RunPlan(lasts=15))], {}),
    "a sidecar that succeeds is started again": (
        "Never", [sidecar_plan(RunPlan(), RunPlan(lasts=2)), main_plan(RunPlan(lasts=16))], {}),
    "main containers wait for the startup probe of a sidecar": ("Never", [sidecar_plan(startup=20), main_plan()], {}),
    "sidecars have the rest of the grace period": (
        "Never", [sidecar_plan(DEAF), sidecar_plan(DEAF, name="t"), main_plan(DEAF)],
        {"deleted_after": 5, "terminationGracePeriodSeconds": 10}),
    "sidecars stop one after the other": (
        "Never", [sidecar_plan(TERMS), sidecar_plan(TERMS, name="t"), main_plan(TERMS)], {"deleted_after": 5}),
    "a pod that is deleted before its containers start": ("Always", [init_plan(FOREVER), main_plan()], {"deleted_after": 0}),
    "a pod that is deleted without init containers": ("Always", [main_plan(), main_plan(name="n")], {"deleted_after": 0}),
    "a pod that is deleted while it initializes": (
        "Always", [init_plan(RunPlan(lasts=None, code=143)), init_plan(name="j"), main_plan()], {"deleted_after": 3}),
    "a pod that is deleted in its back-off": ("Always", [main_plan(RunPlan(code=3))], {"deleted_after": 8}),
    "a pod past its deadline": (
        "Always", [main_plan(DEAF)], {"activeDeadlineSeconds": 20, "terminationGracePeriodSeconds": 5}),
    "a deadline that passes during the deletion": (
        "Always", [main_plan(DEAF)], {"activeDeadlineSeconds": 20, "deleted_after": 18, "terminationGracePeriodSeconds": 5}),
    "a failing liveness probe": ("Always", [main_plan(SICK, spec=GRACE)], {"seconds": 195}),
    "a failing probe of a pod that is never restarted": ("Never", [sidecar_plan(), main_plan(SICK, spec=GRACE)], {}),
    "a failing probe of one of several containers with policies of their own": (
        "Never",
        [main_plan(FAILS, RunPlan(), spec=OWN), main_plan(SICK, name="n", spec=GRACE), main_plan(RunPlan(lasts=60), name="o")],
        {}),
    "a startup probe fails once": (
        "OnFailure", [main_plan(RunPlan(lasts=None, probe_fails=9), RunPlan(lasts=25), startup=20, spec=GRACE)], {}),
    "a failing probe of a sidecar": (
        "Never", [sidecar_plan(RunPlan(lasts=None, probe_fails=9), RunPlan(lasts=None)), main_plan(RunPlan(lasts=12))], {}),
    "a container that cannot start": ("OnFailure", [main_plan(RunPlan(cannot_start=True))], {"seconds": 25}),
    "a container that ends well is started again": ("Always", [main_plan()], {"seconds": 13}),
    "two containers": ("Never", [main_plan(RunPlan(lasts=3, code=7), name="n"), main_plan()], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LIVES)
def test_pod_shows_its_life_as_a_kubelet_does(name: str) -> None:
    """`lives.txt` tells all lives line by line: seconds, phase, containers (`*` started, `+` ready), and what is not true of it."""
    policy, plans, spec = LIVES[name]
    spec = dict(spec)
    seconds = spec.pop("seconds", 4000)
    model = PodModel(policy, plans, **spec)
    model.play(seconds)
    lives = dict(life.split("\n", 1) for life in Path(__file__).with_name("lives.txt").read_text("utf-8").split("\n\n"))
    assert "\n".join(model.shown) == lives[name].strip()


def played(model: PodModel, seconds: float = 4000) -> str:
    """The phase of a pod that has ended."""
    assert model.play(seconds), "it has not ended"
    return str(model.pod["status"]["phase"])


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
