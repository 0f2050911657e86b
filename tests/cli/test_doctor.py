"""What the doctor finds: on the embedded cluster as it is, and on clusters that lack something, answered by a stub."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import catalogue_runtime, replicated_job, runtime, trainjob
from support.ports import free_port
from support.rbac_evaluator import Rbac
from support.shared_folder import shared_folder

from trainwright.api.errors import ApiError, Forbidden, Invalid, NotFound, ServiceUnavailable
from trainwright.api.kinds import CLAIM, LEASE, TRAINJOB, Kind
from trainwright.cli.cluster_checks import (
    check_access,
    check_admission,
    check_apis,
    check_controller,
    check_guard,
    summarized_access,
)
from trainwright.cli.findings import Finding, Level, calls_of, missing, ok, overall_level, warning
from trainwright.cli.job_checks import check_claim, check_pods, check_queue, check_runtimes, check_store
from trainwright.cluster.protocol import Listing
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs.submit.rbac import BESIDE_TRAINER_CALLS, CALLS
from trainwright.storage.store import Capabilities
from trainwright.submission.controller_lease import is_guarded
from trainwright.submission.jobs_client import JobsClient, Mode

Run = Callable[..., Any]
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Answering:
    """A cluster of which the test says what it has; what is not said is not there."""

    host, origin, default_namespace = "https://stub", "test", "default"

    def __init__(self, objects: dict[str, Any] | None = None, paths: dict[str, Any] | None = None, denied: str = ""):
        self._objects, self._paths, self._denied = objects or {}, paths or {}, denied

    def request(self, method: str, path: str, body: Any = None) -> Any:
        if path.endswith("selfsubjectaccessreviews") and path not in self._paths:
            attributes = body["spec"]["resourceAttributes"]
            return {"status": {"allowed": f"{attributes['verb']} {attributes['resource']}" != self._denied}}
        return self._given(self._paths.get(path))

    def list(self, kind: Kind, namespace: str | None = None, field_selector: str = "") -> Listing:
        named = field_selector.removeprefix("metadata.name=")
        items = self._given(self._objects.get(kind.plural))
        return Listing([item for item in items if named in ("", item["metadata"]["name"])], "1")

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        found = [item for item in self._given(self._objects.get(kind.plural)) if item["metadata"]["name"] == name]
        return self._given(found[0] if found else None)

    def _given(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise NotFound("not found")
        return answer


def client_of(cluster: Answering) -> JobsClient:
    return JobsClient(cluster)  # type: ignore[arg-type]  # it answers the requests of these checks, and no others


def group(*versions: str) -> dict[str, Any]:
    return {"versions": [{"version": v} for v in versions], "preferredVersion": {"version": versions[-1]}}


def resources(*plurals: str) -> dict[str, Any]:
    return {"resources": [{"name": plural} for plural in plurals]}


KUEUE: dict[str, Any] = {"/apis/kueue.x-k8s.io": group("v1beta1", "v1beta2")}


def found(findings: Any) -> list[tuple[str, str]]:
    return [(each.level.value, each.subject) for each in findings]


def test_the_verdict_is_the_worst() -> None:
    assert overall_level([]) is Level.ok
    assert overall_level([warning("a", "b", "c", "d"), ok("a", "b", "c")]) is Level.warning
    assert overall_level([missing("a", "b", "c", "d"), warning("a", "b", "c", "d")]) is Level.missing


@pytest.mark.parametrize("call", [call for call in CALLS if not call.subresource], ids=lambda call: str(call.permission("")))
def test_a_right_that_is_missing_is_named_with_what_needs_it(call: Any) -> None:
    findings = list(check_access(Answering(paths=KUEUE, denied=f"{call.verb} {call.kind.plural}"), "team"))  # type: ignore[arg-type]
    denied = next(each for each in findings if each.subject == str(call.permission("team")))
    assert denied.level is (Level.warning if call.impact else Level.missing)
    assert f"needed to {', '.join(call.operations)}" in denied.message
    place, _, line = denied.advice.partition(": ")
    (rule,) = yaml.safe_load(line.partition("; ")[0])
    assert rule == call.rule()
    assert (call.verb, call.kind.group) == (*rule["verbs"], *rule["apiGroups"])
    scope = f"a Role in the namespace {call.namespace or 'team'}" if call.kind.namespaced else "a ClusterRole"
    assert place == f"add to the rules of {scope}"


@pytest.mark.parametrize("mode", [Mode.trainjob, Mode.jobset])
def test_advised_rbac_command_grants_the_right(run: Run, mode: Mode) -> None:
    """The advice names a command, and what that command prints has the right."""
    cluster, served = Answering(), {**KUEUE, "/apis/trainer.kubeflow.org": group("v1alpha1")}
    cluster.request = lambda _method, path, body=None: served.get(path) or {}  # type: ignore[method-assign]
    findings = list(check_access(cluster, "team", mode))  # type: ignore[arg-type]
    assert len(findings) == len(calls_of(mode))
    commands = set()
    for finding, call in zip(findings, calls_of(mode), strict=True):
        command = re.search(r"`trainwright (rbac [^`]+)`", finding.advice)
        assert bool(command) == call.is_granted
        commands |= {command[1]} if command else set()
        assert ".yaml" not in finding.advice
    (command,) = commands
    result = run(*command.replace("NAME", "name").split())
    assert result.exit_code == 0, result.output
    rbac = Rbac(list(yaml.safe_load_all(result.stdout)))
    for call in calls_of(mode):
        assert rbac.allows("team:name", call.permission("team"), call.name) == call.is_granted, call


def test_rights_on_trainers_kinds_count_in_jobset_mode_only_where_they_are_served() -> None:
    def counted(served: bool) -> str:
        paths = {**KUEUE, "/apis/trainer.kubeflow.org": group("v1alpha1")} if served else KUEUE
        (summary,) = check_access(Answering(paths=paths), "team", Mode.jobset)  # type: ignore[arg-type]
        return summary.message

    number = len(calls_of(Mode.jobset))
    assert counted(True) == f"{number} of {number} API calls of a job are allowed"
    assert counted(False) == "{0} of {0} API calls of a job are allowed".format(number - len(BESIDE_TRAINER_CALLS))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, (Level.ok, "accepted in a dry run")),
        (
            Forbidden('denied the request: ... "x" must be created before the TrainJob is created'),
            (Level.ok, "webhooks of Trainer answer"),
        ),
        (
            ApiError('failed calling webhook "validator.trainjob.trainer.kubeflow.org": no endpoints available'),
            (Level.missing, "no TrainJob can be created: failed calling webhook"),
        ),
        (Forbidden("exceeded quota: jobs, requested: count/trainjobs=1"), (Level.missing, "exceeded quota: jobs")),
        (Invalid("spec.runtimeRef: nonsense"), (Level.missing, "spec.runtimeRef: nonsense")),
    ],
)
def test_a_trainjob_is_tried_in_a_dry_run(error: Exception | None, told: tuple[Level, str]) -> None:
    cluster = Answering()
    tried: list[dict[str, Any]] = []

    def create(obj: dict[str, Any], *, dry_run: bool) -> None:
        assert dry_run
        tried.append(obj)
        if error is not None:
            raise error

    cluster.create = create  # type: ignore[attr-defined]
    (finding,) = check_admission(cluster, "team", "trl-sft")  # type: ignore[arg-type]
    assert (finding.level, told[1] in finding.message) == (told[0], True), finding
    assert tried[0]["spec"] == {"runtimeRef": {"name": "trl-sft"}}


def test_admission_check_leaves_missing_rights_and_outages_to_others() -> None:
    cluster = Answering(denied="create trainjobs")

    def create(_obj: Any, *, dry_run: bool) -> None:
        raise answers.pop(0)

    cluster.create = create  # type: ignore[attr-defined]
    answers: list[Exception] = [Forbidden("cannot create resource"), ServiceUnavailable("starting")]
    assert list(check_admission(cluster, "team")) == []  # type: ignore[arg-type]
    with pytest.raises(ServiceUnavailable):
        list(check_admission(cluster, "team"))  # type: ignore[arg-type]


def test_missing_rights_are_one_line() -> None:
    rights = ("create trainjobs in the namespace team", "list nodes", "get jobs in the namespace team")
    access = [Finding("access", right, Level.warning, "not allowed", "grant it") for right in rights]
    mode, granted = ok("mode", "jobset", "auto"), ok("access", "calls", "3 of 6")
    one, *others = summarized_access([mode, *access, granted], "team")[1:]
    assert one.level is Level.warning
    assert one.message == "not allowed: create trainjobs, list nodes, get jobs"
    assert "`trainwright rbac --namespace team --service-account NAME --mode jobset`" in one.advice
    assert others == [granted]
    assert summarized_access([mode, access[0], granted], "team") == [mode, access[0], granted]
    worst = [*access, missing("access", "delete trainjobs", "not allowed", "grant it")]
    assert summarized_access(worst, "team")[0].level is Level.missing


def test_a_subresource_is_asked_for_as_one() -> None:
    asked: list[dict[str, str]] = []
    cluster = Answering()

    def request(_method: str, path: str, body: Any = None) -> Any:
        if body is None:
            raise NotFound("no Kueue")
        asked.append(body["spec"]["resourceAttributes"])
        return {}

    cluster.request = request  # type: ignore[method-assign]
    findings = list(check_access(cluster, "team"))  # type: ignore[arg-type]
    assert {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "team"} in asked
    named = {"verb": "get", "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions"}
    assert {**named, "name": "trainjobs.trainer.kubeflow.org"} in asked
    lease = {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "kubeflow-system"}
    assert {**lease, "name": "trainer.kubeflow.org"} in asked
    assert not [each for each in asked if each.get("group") == "kueue.x-k8s.io"], "which this cluster does not have"
    of_others = [call for call in CALLS if call.kind.group != "kueue.x-k8s.io"]
    assert len(findings) == len(of_others), "nothing is allowed where the answer does not say so"


def test_a_review_that_is_refused_is_said_once() -> None:
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    (only,) = check_access(Answering(paths={reviews: Forbidden("no reviews")}), "team")  # type: ignore[arg-type]
    assert only.level is Level.warning
    assert "no reviews" in only.message
    assert "`trainwright rbac --namespace team --service-account NAME`" in only.advice


TRAINER = "/apis/trainer.kubeflow.org"
JOBSET = "/apis/jobset.x-k8s.io"
SERVED = {
    TRAINER: group("v1alpha1"),
    f"{TRAINER}/v1alpha1": resources("trainjobs", "trainingruntimes", "clustertrainingruntimes"),
    JOBSET: group("v1alpha2"),
    f"{JOBSET}/v1alpha2": resources("jobsets"),
}


@pytest.mark.parametrize(
    ("paths", "levels", "words"),
    [
        (SERVED, ["ok", "ok"], "v1alpha1"),
        ({**SERVED, TRAINER: None}, ["missing", "ok"], "is not served; v1alpha1 is required"),
        ({**SERVED, TRAINER: group("v2")}, ["missing", "ok"], "serves only v2"),
        ({**SERVED, f"{TRAINER}/v1alpha1": resources("trainjobs")}, ["missing", "ok"], "without clustertrainingruntimes"),
        ({**SERVED, JOBSET: None}, ["ok", "missing"], "jobset.x-k8s.io"),
    ],
)
def test_check_apis_reports_the_served_versions(paths: dict[str, Any], levels: list[str], words: str) -> None:
    findings = list(check_apis(Answering(paths=paths)))  # type: ignore[arg-type]
    assert [each.level.value for each in findings] == levels
    assert words in " ".join(f"{each.subject} {each.message}" for each in findings)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("version", "words"),
    [("2.1.0", "of Trainer 2.1:"), ("2.2.1", "Trainer 2.2 or later"), ("2.3.0", "Trainer 2.2 or later")],
)
def test_the_version_of_trainer_is_told_by_its_schema(version: str, words: str) -> None:
    path = shared_folder(f"upstream/trainer/crds-v{version}") / "trainer.kubeflow.org_trainjobs.yaml"
    definition = yaml.load(path.read_text(), yaml.CSafeLoader)
    cluster = Answering({"customresourcedefinitions": [definition]}, SERVED)
    cluster.host = f"https://{version}"  # the schema of a host is kept
    assert words in next(iter(check_apis(cluster))).message  # type: ignore[arg-type]


def lease(renewed: str) -> dict[str, Any]:
    metadata = {"name": "trainer.kubeflow.org", "namespace": "kubeflow-system"}
    return {"metadata": metadata, "spec": {"holderIdentity": "manager", "renewTime": renewed}}


def created_job(created: str, **status: Any) -> dict[str, Any]:
    return trainjob(metadata={"creationTimestamp": created}, status=status)


@pytest.mark.parametrize(
    ("leases", "jobs", "level"),
    [
        ([lease("2026-01-01T11:59:50.123456Z")], [], "ok"),
        ([lease("2026-01-01T11:00:00.000000Z")], [], "missing"),
        ([], [], "warning"),
        (Forbidden("no"), [created_job("2026-01-01T11:00:00Z", conditions=[{"type": "Complete"}])], "ok"),
        (Forbidden("no"), [created_job("2026-01-01T11:00:00Z", jobsStatus=[{"name": "node"}])], "ok"),
        (Forbidden("no"), [created_job("2026-01-01T11:58:00Z")], "missing"),
        (Forbidden("no"), [created_job("2026-01-01T11:59:30Z")], "warning"),
        (Forbidden("no"), Forbidden("no"), "warning"),
    ],
)
def test_whether_a_controller_lives(leases: Any, jobs: Any, level: str) -> None:
    cluster = Answering({LEASE.plural: leases, TRAINJOB.plural: jobs}, {"/version": {"gitVersion": "v1.34.1"}})
    finding = check_controller(cluster, "default", NOW, sleep=lambda _: None)  # type: ignore[arg-type]
    assert finding.level.value == level
    assert bool(finding.advice) == (level != "ok")


def guard_lease(renewed: str, namespace: str = "team", holder: str = "guard-1") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed}
    return {"metadata": {"name": "trainwright-guard", "namespace": namespace}, "spec": spec}


class GuardLeases(Answering):
    """A cluster with these Leases of guards; `forbidden` are the namespaces whose Lease may not be read."""

    def __init__(self, leases: list[dict[str, Any]], forbidden: tuple[str, ...], version: str):
        super().__init__({LEASE.plural: Forbidden("not you")}, {"/version": {"gitVersion": version}})
        self._leases, self._forbidden = leases, forbidden

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        if kind is not LEASE or namespace in self._forbidden:
            raise Forbidden("not you")
        found = [each for each in self._leases if (each["metadata"]["name"], each["metadata"]["namespace"]) == (name, namespace)]
        return self._given(found[0] if found else None)


FRESH, STALE = "2026-01-01T11:59:50.123456Z", "2026-01-01T11:00:00.000000Z"
OWN_CONTROLLER = {**guard_lease(FRESH, "trainwright-system"), "metadata": {"name": "trainwright-controller"}}
OWN_CONTROLLER["metadata"]["namespace"] = "trainwright-system"


@pytest.mark.parametrize(
    ("leases", "forbidden", "version", "by_controller", "expected"),
    [
        ([guard_lease(FRESH)], (), "v1.34.1", True, True),
        ([guard_lease(FRESH, "trainwright-system")], ("team",), "v1.34.1", True, True),
        ([guard_lease(STALE)], ("kubeflow-system",), "v1.34.1", False, False),
        ([guard_lease(FRESH, holder="")], (), "v1.34.1", False, False),
        ([], (), "v1.34.1", False, False),
        ([], (), "v1.34.1+trainwright", True, True),
        ([], (), "v1.34.1+trainwright", False, False),
        ([], ("team",), "v1.34.1", True, None),
        ([], ("kubeflow-system",), "v1.34.1", True, None),
        ([OWN_CONTROLLER], (), "v1.34.1", True, True),
    ],
)
def test_whether_jobs_are_guarded(
    leases: list[dict[str, Any]], forbidden: tuple[str, ...], version: str, by_controller: bool, expected: bool | None
) -> None:
    cluster: Any = GuardLeases(leases, forbidden, version)
    assert is_guarded(cluster, "team", by_controller=by_controller, now=NOW) is expected


@pytest.mark.parametrize(("guarded", "level"), [(True, "ok"), (None, "ok"), (False, "warning")])
def test_guard_is_advised_if_nothing_watches(monkeypatch: pytest.MonkeyPatch, guarded: bool | None, level: str) -> None:
    monkeypatch.setattr(JobsClient, "is_guarded", lambda _client, _namespace: guarded)
    finding = check_guard(client_of(Answering()), "team")
    assert (finding.level.value, "rbac --namespace team --guard" in finding.advice) == (level, level == "warning")


def labelled_runtime(name: str, step: str = "trainer", **labels: str) -> dict[str, Any]:
    return runtime(name, replicated_job(step=step), labels=labels or {"trainer.kubeflow.org/framework": "torch"})


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        ([labelled_runtime("torch")], "torch", [("ok", "torch")]),
        ([labelled_runtime("torch"), labelled_runtime("jax")], "", [("ok", "jax"), ("ok", "torch")]),
        ([labelled_runtime("torch")], "torhc", [("missing", "torhc"), ("ok", "torch")]),
        ([labelled_runtime("torch", other="x")], "torch", [("warning", "torch")]),
        ([labelled_runtime("torch", step="data")], "torch", [("warning", "torch")]),
        ([], "", [("missing", "all")]),
    ],
)
def test_runtimes(there: Any, wanted: str, expected: Any) -> None:
    objects = {"clustertrainingruntimes": there, "trainingruntimes": []}
    assert found(check_runtimes(client_of(Answering(objects)), "default", wanted)) == expected


FORBIDDEN = {"clustertrainingruntimes": Forbidden("not you"), "trainingruntimes": []}


@pytest.mark.parametrize(
    ("error", "level", "words"),
    [
        (None, Level.ok, "accepted in a dry run"),
        (
            Forbidden('pods "x" is forbidden: User "me" cannot create resource "pods"'),
            Level.ok,
            "not checked: this account may not",
        ),
        (
            Forbidden('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'),
            Level.missing,
            "step node was refused in a dry run: .* -> the namespace enforces the Pod Security level restricted: set the security",
        ),
        (Invalid("spec.containers[0].image: Required value"), Level.warning, "step node cannot be checked: .*image"),
    ],
)
def test_pods_of_the_named_runtime_are_tried_in_a_dry_run(error: Exception | None, level: Level, words: str) -> None:
    made: list[Any] = []

    class Trying(Answering):
        def create(self, obj: Any, *, dry_run: bool) -> Any:
            made.append((obj["kind"], obj["spec"]["containers"][0]["image"], dry_run))
            if error is not None:
                raise error
            return obj

    cluster: Any = Trying({"clustertrainingruntimes": [catalogue_runtime("torch-distributed")]})
    (finding,) = check_pods(JobsClient(cluster), "default", "torch-distributed")
    assert (finding.check, finding.level) == ("pods", level)
    assert re.match(words, f"{finding.message} -> {finding.advice}")
    ((kind, image, is_dry),) = made
    assert (kind, image.startswith("pytorch/pytorch:"), is_dry) == ("Pod", True, True)


def test_a_runtime_whose_policy_the_controller_does_not_have_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobsClient, "why_no_plugins", lambda *_: "Trainer's own")
    runtimes = {name: catalogue_runtime(f"{name}-distributed") for name in ("paddle", "jax")}
    objects = {"clustertrainingruntimes": list(runtimes.values()), "trainingruntimes": []}
    findings = list(check_runtimes(client_of(Answering(objects)), "default"))
    assert found(findings) == [("ok", "jax-distributed"), ("ok", "paddle-distributed"), ("warning", "paddle-distributed")]
    assert "jobs of several nodes are refused (Trainer's own)" in findings[-1].message


def test_runtimes_that_may_not_be_listed_are_not_said_to_be_absent() -> None:
    (finding,) = check_runtimes(client_of(Answering(FORBIDDEN)), "team")
    assert (finding.level, finding.subject) == (Level.warning, "clustertrainingruntimes")
    assert "cannot be listed: not you" in finding.message
    rule = "- {apiGroups: [trainer.kubeflow.org], resources: [clustertrainingruntimes], verbs: [list]}"
    assert finding.advice.startswith(f"add to the rules of a ClusterRole: {rule}; `trainwright rbac --namespace team ")


def test_a_runtime_that_may_not_be_read_is_not_said_to_be_absent() -> None:
    listed, named = check_runtimes(client_of(Answering(FORBIDDEN)), "team", "torch")
    assert (listed.level, named.level, named.subject) == (Level.warning, Level.warning, "torch")
    assert "may or may not exist" in named.message


def test_a_runtime_that_may_be_read_and_is_not_there_is_absent() -> None:
    class OneByOne(Answering):
        def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
            raise NotFound("no such runtime")

    listed, named = check_runtimes(client_of(OneByOne(FORBIDDEN)), "team", "torch")
    assert (listed.level, named.level, named.message) == (Level.warning, Level.missing, "does not exist")


def test_a_controller_whose_lease_may_not_be_read_is_unknown_and_the_rule_is_named() -> None:
    cluster = Answering({LEASE.plural: Forbidden("no"), TRAINJOB.plural: []}, {"/version": {"gitVersion": "v1.36.3"}})
    finding = check_controller(cluster, "team", NOW)  # type: ignore[arg-type]
    assert finding.level is Level.warning
    assert "add to the rules of a Role in the namespace kubeflow-system" in finding.advice
    assert "resourceNames: [trainer.kubeflow.org], verbs: [get]}" in finding.advice


def test_a_failure_that_no_rule_mends_is_not_called_a_missing_right() -> None:
    objects = {"clustertrainingruntimes": ServiceUnavailable("overloaded"), "trainingruntimes": []}
    (finding,) = check_runtimes(client_of(Answering(objects)), "team")
    assert "rules" not in finding.advice
    assert "rules" not in check_claim(Answering({CLAIM.plural: ServiceUnavailable("no")}), "team", "c").advice  # type: ignore[arg-type]
    assert "verbs: [get]" in check_claim(Answering({CLAIM.plural: Forbidden("no")}), "team", "c").advice  # type: ignore[arg-type]
    assert "verbs: [list]" in check_queue(Answering({"localqueues": Forbidden("no")}, KUEUE), "team").advice  # type: ignore[arg-type]


def test_a_runtime_that_is_meant_is_suggested() -> None:
    objects = {"clustertrainingruntimes": [runtime("torch")], "trainingruntimes": []}
    (finding, *_) = check_runtimes(client_of(Answering(objects)), "default", "torhc")
    assert finding.advice == "did you mean torch?"


def queue(active: str) -> dict[str, Any]:
    conditions = [{"type": "Active", "status": active, "reason": "R", "message": "M"}]
    return {"metadata": {"name": "q"}, "spec": {"clusterQueue": "c"}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("paths", "queues", "wanted", "level", "words"),
    [
        ({}, None, "", "ok", "not installed"),
        ({}, None, "q", "missing", "stay suspended"),
        (KUEUE, [queue("True")], "", "ok", "LocalQueues of default: q"),
        (KUEUE, [queue("True")], "q", "ok", "cluster queue c"),
        (KUEUE, [queue("True")], "r", "missing", "no such LocalQueue"),
        (KUEUE, [queue("False")], "q", "missing", "not active: R: M"),
        (KUEUE, Forbidden("no"), "q", "warning", "cannot be listed"),
    ],
)
def test_queues(paths: Any, queues: Any, wanted: str, level: str, words: str) -> None:
    finding = check_queue(Answering({"localqueues": queues}, paths), "default", wanted)  # type: ignore[arg-type]
    assert finding.level.value == level
    assert words in finding.message


@pytest.mark.parametrize(
    ("modes", "phase", "level"),
    [
        (["ReadWriteOnce", "ReadWriteMany"], "Bound", "ok"),
        (["ReadWriteOnce"], "Bound", "warning"),
        (["ReadWriteOncePod"], "Pending", "warning"),
        (["ReadOnlyMany"], "Bound", "missing"),
        (["ReadWriteMany"], "Lost", "missing"),
    ],
)
def test_claims(modes: list[str], phase: str, level: str) -> None:
    claim = {"metadata": {"name": "work"}, "spec": {"accessModes": modes}, "status": {"phase": phase}}
    assert check_claim(Answering({CLAIM.plural: [claim]}), "default", "work").level.value == level  # type: ignore[arg-type]
    assert check_claim(Answering({CLAIM.plural: [claim]}), "default", "other").level is Level.missing  # type: ignore[arg-type]
    assert check_claim(Answering({CLAIM.plural: Forbidden("no")}), "default", "work").level is Level.warning  # type: ignore[arg-type]


def test_a_folder_is_left_as_it_was(tmp_path: Path) -> None:
    assert check_store(f"file://{tmp_path}/new/exports").level is Level.ok
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for uri in (f"file://{tmp_path}/file/exports", "ftp://x", "hf://a/b"):
        assert check_store(uri).level is Level.missing, uri


@pytest.mark.medium
def test_a_bucket_is_left_as_it_was(s3_folder: str) -> None:
    from trainwright.storage.objects.s3_store import S3Store
    from trainwright.storage.uri import StorageUri

    finding = check_store(s3_folder)
    assert (finding.level, finding.check, finding.subject) == (Level.ok, "store", s3_folder), finding
    assert S3Store(StorageUri.parse(s3_folder)).list_objects() == []
    bucketless = s3_folder.replace("s3://", "s3://no-such-bucket-")
    assert check_store(bucketless).level is Level.missing


def test_a_bucket_that_ignores_conditions_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless:
        def check_writable(self) -> None:
            pass

        def capabilities(self) -> Capabilities:
            return Capabilities(conditional_writes=False, checks_uploads=False)

    monkeypatch.setattr("trainwright.cli.job_checks.open_store", lambda _uri: Careless())
    assert check_store("s3://b/c").level is Level.warning


@pytest.mark.medium
def test_the_embedded_cluster_is_well(plane: ControlPlane, run: Run, tmp_path: Path) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "work", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.cluster.create(claim)
    wishes = ("--runtime", "torch-distributed", "--claim", "work", "--store", f"file://{tmp_path}/exports")
    result = run("doctor", *wishes, "--output", "json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["verdict"], told["namespace"]) == ("ok", "default")
    assert [each["check"] for each in told["findings"]] == [
        *(
            "cluster",
            "namespace",
            "mode",
            "access",
            "api",
            "api",
            "controller",
            "admission",
            "guard",
            "runtime",
            "pods",
            "queue",
            "claim",
            "store",
        )
    ]
    assert set(told["findings"][0]) == set(Finding.__dataclass_fields__)
    lines = run("doctor", *wishes).stdout.splitlines()
    assert len(lines) == len(told["findings"])
    assert all(line.startswith("ok ") for line in lines)


@pytest.mark.medium
def test_something_missing_is_exit_code_1_with_what_to_do(plane: ControlPlane, run: Run) -> None:
    result = run("doctor", "--runtime", "torch-distributet", "--queue", "q", "-n", "nowhere")
    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if line.startswith("missing")]
    assert [line.split()[1] for line in lines] == ["namespace", "runtime", "queue"]
    assert "did you mean torch-distributed?" in lines[1]
    assert all(" -> " in line for line in lines)


@pytest.mark.medium
def test_warnings_are_exit_code_0(plane: ControlPlane, run: Run) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "single", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.cluster.create(claim)
    result = run("doctor", "--claim", "single", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (0, "warning")


def test_no_cluster_is_a_finding(run: Run, tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    server = f"https://127.0.0.1:{free_port()}"
    context = {"name": "a", "context": {"cluster": "a", "user": "me"}}
    clusters = [{"name": "a", "cluster": {"server": server}}]
    users = [{"name": "me", "user": {}}]
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [context]}
    dead.write_text(yaml.safe_dump({**config, "clusters": clusters, "users": users}))
    for path, subject in ((dead, server), (tmp_path / "none", "none")):
        result = run("doctor", "--kubeconfig", str(path), "-o", "json")
        (only,) = json.loads(result.stdout)["findings"]
        assert (result.exit_code, only["level"], only["subject"]) == (1, "missing", subject)
        assert only["advice"]
