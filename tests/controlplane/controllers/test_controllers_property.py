"""The controllers under random fire: keys in any order, changes late, crashes between any two writes, writes that fail, pods that do
what they like, users who change their minds. Whatever happens, some things never do; and a crash changes no outcome.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import factories
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from stepped import Crash, Stepped, failing, sized_jobset, sized_trainjob

from trainwright.api.errors import ApiError, Conflict, NotFound, ServiceUnavailable
from trainwright.api.kinds import CONFIG_MAP, JOB, JOBSET, NODE, POD, SECRET, SERVICE, TRAINJOB
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed
from trainwright.runtimes import bundled_runtimes

Obj = dict[str, Any]
FEW = settings.default.max_examples // 4 if settings.default else 15
CPU = 6
ROOTS = (TRAINJOB, JOBSET, JOB)
OWNED = (JOBSET, JOB, POD, SERVICE, CONFIG_MAP, SECRET)
UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"
ENDS = ("Complete", "Completed", "Failed")
RUNTIME = next(runtime for runtime in bundled_runtimes() if runtime["metadata"]["name"] == "torch-distributed")


def standing(obj: Obj) -> dict[str, bool]:
    return {entry["type"]: entry["status"] == "True" for entry in (obj.get("status") or {}).get("conditions") or []}


def ended(obj: Obj) -> tuple[str, ...]:
    return tuple(kind for kind in ENDS if standing(obj).get(kind))


def is_live(pod: Obj) -> bool:
    return pod["status"]["phase"] not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def index_of(pod: Obj) -> str:
    return str((pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", ""))


def owner(obj: Obj) -> Obj:
    return (obj["metadata"].get("ownerReferences") or [{}])[0]


@st.composite
def job_parts(draw: st.DrawFn) -> Obj:
    pods = draw(st.integers(1, 3))
    more: Obj = {"backoffLimit": draw(st.sampled_from([0, 0, 1, 3]))}
    more |= draw(
        st.sampled_from(
            [
                {},
                {},
                {"completions": pods + 1},
                {"podReplacementPolicy": "Failed"},
                {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
                {"backoffLimitPerIndex": 1, "backoffLimit": 10, "maxFailedIndexes": 1},
                {"completionMode": "NonIndexed"},
                {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}},
                {"activeDeadlineSeconds": 60},
            ]
        )
    )
    return {"pods": pods, "cpu": draw(st.sampled_from(["1", "1", "2"])), "job": more}


@st.composite
def jobsets(draw: st.DrawFn) -> Obj:
    first, second = draw(job_parts()), draw(st.none() | job_parts())
    steps = [("a", draw(st.integers(1, 2)), first["pods"], first["cpu"], {"job": first["job"]})]
    spec: Obj = {"failurePolicy": {"maxRestarts": draw(st.integers(0, 2))}}
    if second is not None:
        more: Obj = {"job": second["job"]}
        order = draw(st.sampled_from(["", "Complete", "Ready", "InOrder"]))
        if order in ("Complete", "Ready"):
            more["dependsOn"] = [{"name": "a", "status": order}]
        elif order:
            spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
        steps.append(("b", 1, second["pods"], second["cpu"], more))
        if draw(st.booleans()):
            spec["successPolicy"] = {"operator": "Any", "targetReplicatedJobs": ["a"]}
    if draw(st.booleans()):
        spec["failurePolicy"]["restartStrategy"] = "BlockingRecreate"
    if action := draw(st.sampled_from(["", "", UNCOUNTED])):
        spec["failurePolicy"]["rules"] = [{"name": "rule", "action": action}]
    if draw(st.booleans()):
        spec["ttlSecondsAfterFinished"] = 30
    if draw(st.booleans()):
        spec["suspend"] = True
    return sized_jobset("set", steps=steps, **spec)


@st.composite
def workloads(draw: st.DrawFn) -> Obj:
    kind = draw(st.sampled_from(["Job", "JobSet", "JobSet", "TrainJob"]))
    if kind == "TrainJob":
        more = draw(st.sampled_from([{}, {"suspend": True}, {"activeDeadlineSeconds": 40}]))
        return sized_trainjob("set", draw(st.integers(1, 3)), **more)
    if kind == "JobSet":
        return draw(jobsets())
    parts = draw(job_parts())
    made = sized_jobset(steps=[("a", 1, parts["pods"], parts["cpu"], {"job": parts["job"]})])
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    if draw(st.booleans()):
        spec["ttlSecondsAfterFinished"] = 30
    return factories.job("set", **spec)


def new_world() -> Stepped:
    world = Stepped(cpu=str(CPU))
    world.cluster.create(RUNTIME)
    return world


def owned_by_someone(world: Stepped) -> list[str]:
    return [
        f"{kind.kind} {obj['metadata']['name']}"
        for kind in OWNED
        for obj in world.cluster.list(kind).items
        if obj["metadata"].get("ownerReferences")
    ]


class UnderFire(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = new_world()
        self.ends: dict[str, tuple[str, ...]] = {}

    @initialize(workload=workloads())
    def submit(self, workload: Obj) -> None:
        self.kind = next(kind for kind in ROOTS if kind.kind == workload["kind"])
        self.world.cluster.create(workload)

    # -- the controllers

    @rule(which=st.integers(0, 4), times=st.integers(1, 12))
    def work(self, which: int, times: int) -> None:
        for number in range(times):
            try:
                self.world.step(which + number)
            except Crash:
                self.world.start()

    @rule(which=st.integers(0, 9), all_of_them=st.booleans())
    def deliver(self, which: int, all_of_them: bool) -> None:
        while self.world.deliver(which) and all_of_them:
            pass

    @rule()
    def settle(self) -> None:
        try:
            self.world.settle()
        except Crash:
            self.world.start()

    @rule(seconds=st.sampled_from([0.3, 1, 11, 50]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(number=st.integers(1, 8), after=st.booleans(), settled=st.booleans())
    def crash_soon(self, number: int, after: bool, settled: bool) -> None:
        setattr(self.world.writing, "after" if after else "before", failing(number, Crash()))
        if settled:
            self.settle()

    @rule(
        number=st.integers(1, 8),
        error=st.sampled_from([Conflict("somebody was first"), ServiceUnavailable("busy"), StorageFailed("disk full")]),
        after=st.booleans(),
    )
    def fail_soon(self, number: int, error: ApiError, after: bool) -> None:
        """`after`: it was written, and nobody was told."""
        setattr(self.world.writing, "after" if after else "before", failing(number, error))

    @rule()
    def die(self) -> None:
        self.world.start()

    # -- the node

    @rule(which=st.integers(0, 9), what=st.sampled_from(["ready", "ready", "succeed", "succeed", "fail", "fail", "forbidden"]))
    def pod_does(self, which: int, what: str) -> None:
        pods = [
            pod for pod in self.world.pods() if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
        ]
        if not pods:
            return
        pod = pods[which % len(pods)]
        if what == "ready":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            self.world.set_pod(pod["metadata"]["name"], phase="Running", conditions=[ready])
        else:
            self.world.end_pod(pod, {"succeed": 0, "fail": 1, "forbidden": 3}[what])

    @rule(which=st.integers(0, 9), grace=st.sampled_from([0, None]))
    def pod_is_taken_away(self, which: int, grace: int | None) -> None:
        pods = self.world.pods()
        if pods:
            self.world.cluster.delete(POD, pods[which % len(pods)]["metadata"]["name"], "default", grace_period_seconds=grace)

    @rule()
    def doomed_pods_end(self) -> None:
        self.world.gone_pods()

    @rule(away=st.booleans())
    def node_is_cordoned(self, away: bool) -> None:
        self.world.cluster.patch(NODE, "local", {"spec": {"unschedulable": away or None}})

    # -- the user

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self._patch({"spec": {"suspend": suspend}})

    @rule(pods=st.integers(1, 4))
    def resize(self, pods: int) -> None:
        if self.kind is JOB:
            self._patch({"spec": {"parallelism": pods, "completions": pods}})
            self._patch({"spec": {"parallelism": pods}})

    @precondition(lambda self: len(self.ends) > 0)
    @rule(propagation=st.sampled_from(["Background", "Foreground"]))
    def delete(self, propagation: Any) -> None:
        try:
            self.world.cluster.delete(self.kind, "set", "default", propagation=propagation)
        except NotFound:
            return

    def _patch(self, patch: Obj) -> None:
        try:
            self.world.cluster.patch(self.kind, "set", patch, "default")
        except ApiError:  # the rules of its kind say no, or it is gone: nothing has changed
            return

    # -- what never happens

    @invariant()
    def never(self) -> None:
        self.nobody_restarts_too_often()
        self.no_index_has_two_pods()
        self.the_node_is_never_overcommitted()
        self.the_end_is_the_end()
        self.nothing_is_counted_twice()

        assert self.world.own_objects_changed() == []

    def nobody_restarts_too_often(self) -> None:
        for found in self.world.cluster.list(JOBSET).items:
            most = (found["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
            status = found.get("status") or {}
            assert status.get("restartsCountTowardsMax", 0) <= most
            if not (found["spec"].get("failurePolicy") or {}).get("rules"):
                assert status.get("restarts", 0) <= most

    def no_index_has_two_pods(self) -> None:
        live = [(owner(pod).get("uid"), index) for pod in self.world.pods() if is_live(pod) and (index := index_of(pod))]
        assert [key for key, count in Counter(live).items() if count > 1] == []

    def the_node_is_never_overcommitted(self) -> None:
        bound = [
            pod for pod in self.world.pods() if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
        ]
        asked = [int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in bound]
        assert sum(asked) <= CPU

    def the_end_is_the_end(self) -> None:
        for kind in ROOTS:
            for found in self.world.cluster.list(kind).items:
                now, before = ended(found), self.ends.get(found["metadata"]["uid"], ())
                assert len(now) <= 1, found["status"]
                assert not before or now == before, found["status"]
                if now:
                    self.ends[found["metadata"]["uid"]] = now

    def nothing_is_counted_twice(self) -> None:
        for job in self.world.cluster.list(JOB).items:
            status, spec = job.get("status") or {}, job["spec"]
            if spec.get("completionMode") == "Indexed" and spec.get("completions") is not None:
                assert status.get("succeeded", 0) <= spec["completions"]
                assert len(set(status.get("completedIndexes", "").split(","))) == len(
                    status.get("completedIndexes", "").split(",")
                )

    # -- and at the end

    def teardown(self) -> None:
        try:
            self._end_well()
        finally:
            self.world.__exit__()

    def _end_well(self) -> None:
        world = self.world
        world.start()
        world.cluster.patch(NODE, "local", {"spec": {"unschedulable": None}})
        # What was too large for the machine gets a larger one.
        world.cluster.patch(NODE, "local", {"status": {"allocatable": {"cpu": "100"}}}, subresource="status")
        self._patch({"spec": {"suspend": False}})
        run_to_end(world, lambda pod: 0)
        root = world.get(self.kind, "set")
        if root is not None and not root["metadata"].get("deletionTimestamp"):
            assert ended(root), (root.get("status"), [(pod["metadata"]["name"], pod["status"]) for pod in world.pods()])
            before = list(world.writing.writes)
            world.start()
            world.settle()
            assert world.writing.writes == before
            self.delete("Foreground")
        run_to_end(world, lambda pod: 0)
        assert owned_by_someone(world) == [], world.writing.writes[-20:]
        assert world.get(self.kind, "set") is None


def run_to_end(world: Stepped, code: Any, rounds: int = 60, *, settle: Any = None) -> None:
    """A node that works: what it is given ends with the code that is told, what is deleted goes, until nothing more comes."""
    settle = settle or (lambda: world.settle_in_time(5))
    for _ in range(rounds):
        settle()
        before = world.store.accepted_revision
        world.gone_pods()
        for pod in world.pods():
            if pod["spec"].get("nodeName") and is_live(pod):
                world.end_pod(pod, code(pod))
        if world.store.accepted_revision == before:
            wait = world.next_due()
            if wait is None or wait > 700:
                return
            world.advance(wait + 0.001)
    raise AssertionError(f"no end after {rounds} rounds: {world.writing.writes[-20:]} {world.errors[-5:]}")


UnderFire.TestCase.settings = settings(
    max_examples=FEW,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    deadline=None,
)
TestUnderFireProperty = pytest.mark.medium(UnderFire.TestCase)


# -- a crash changes no outcome


def outcome(world: Stepped) -> Obj:
    """What users look at, without names, times and numbers that two runs need not share.

    Nor whether a step was seen to start before it ended: these pods end in the moment in which they start.
    """
    found: Obj = {}
    for kind in ROOTS:
        for obj in world.cluster.list(kind).items:
            status = obj.get("status") or {}
            conditions = [entry for entry in status.get("conditions") or [] if not entry["type"].startswith("StartupPolicy")]
            said = sorted((entry["type"], entry["status"], entry.get("reason", "")) for entry in conditions)
            counts = {
                name: status.get(name)
                for name in ("completedIndexes", "failedIndexes", "restarts", "terminalState", "jobsStatus")
            }
            found[f"{kind.kind} {obj['metadata']['name']}"] = (said, {name: count for name, count in counts.items() if count})
    return found


class Played:
    """A script on a world of its own: what pods do is drawn once, by Job, attempt, index and try, so that it is the same again."""

    def __init__(self, workload: Obj, codes: list[int], suspensions: set[int], crashes: list[tuple[int, bool]]):
        self.world, self._codes, self._tries = new_world(), codes, Counter[str]()
        self._crashes = list(crashes)
        self._suspensions, self._round, self._kind = suspensions, 0, workload["kind"]
        self.crashed = 0
        with self.world:
            self._arm()
            self.world.cluster.create(workload)
            run_to_end(self.world, self._code, settle=self._settle)
            self.outcome = outcome(self.world)

    def _arm(self) -> None:
        if self._crashes:
            number, after = self._crashes.pop(0)
            setattr(self.world.writing, "after" if after else "before", failing(number, Crash()))

    def _settle(self) -> None:
        self._round += 1
        if self._round in self._suspensions:
            self._suspend(True)
            self._until_settled()
            self.world.gone_pods()
            self._until_settled()
            self._suspend(False)
        self._until_settled()

    def _until_settled(self) -> None:
        while True:
            try:
                self.world.settle_in_time(5)
                return
            except Crash:
                self.crashed += 1
                self.world.start()
                self._arm()

    def _suspend(self, suspend: bool) -> None:
        kind = next(kind for kind in ROOTS if kind.kind == self._kind)
        found = self.world.get(kind, "set")
        if found is not None and not ended(found):
            self.world.cluster.patch(kind, "set", {"spec": {"suspend": suspend}}, "default")

    def _code(self, pod: Obj) -> int:
        labels = pod["metadata"]["labels"]
        attempt = labels.get("jobset.sigs.k8s.io/restart-attempt", "")
        who = f"{labels['batch.kubernetes.io/job-name']}/{attempt}/{index_of(pod)}"
        self._tries[who] += 1
        return self._codes[sum(map(ord, f"{who}/{self._tries[who]}")) % len(self._codes)]


def ends_by_itself(workload: Obj) -> bool:
    """And stays, so that its outcome can be looked at."""
    rules = (workload["spec"].get("failurePolicy") or {}).get("rules") or []
    return "ttlSecondsAfterFinished" not in workload["spec"] and all(rule["action"] != UNCOUNTED for rule in rules)


@pytest.mark.medium
@given(
    workload=workloads().filter(ends_by_itself),
    codes=st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=5, max_size=12),
    suspensions=st.sets(st.integers(2, 5), max_size=1),
    crashes=st.lists(st.tuples(st.integers(1, 25), st.booleans()), min_size=1, max_size=5),
)
@settings(max_examples=FEW, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)
def test_a_crash_changes_no_outcome_property(
    workload: Obj, codes: list[int], suspensions: set[int], crashes: list[tuple[int, bool]]
) -> None:
    workload["spec"].pop("suspend", None)
    untouched = Played(workload, codes, suspensions, [])
    assert Played(workload, codes, suspensions, crashes).outcome == untouched.outcome
