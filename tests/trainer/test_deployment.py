"""`deploy/controller`: the rights are those that a run asks for, no more and no fewer; restricted namespaces take the pod."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from factories import runtime
from support.proxied_controllers import Running, create, find_jobset, jobset_of_somebody, reviewed
from support.rbac_evaluator import Rbac
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.conditions import is_finished
from trainwright.api.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    COSCHEDULING_GROUP,
    EVENT,
    JOBSET,
    SECRET,
    TRAINING_RUNTIME,
    TRAINJOB,
    VOLCANO_GROUP,
)
from trainwright.cli import app
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs.state.waiters import renewal_patch
from trainwright.trainer.standalone.requirements import RequirementsNotMet, check

FOLDER = Path(__file__).parents[2] / "deploy" / "controller"
ACCOUNT = "trainwright-system:trainwright-controller"
OPTIONAL = ("mpi-flux.yaml", "take-over-webhooks.yaml")
WEBHOOKS = {
    ("get", "mutatingwebhookconfigurations.admissionregistration.k8s.io"),
    ("get", "validatingwebhookconfigurations.admissionregistration.k8s.io"),
}
UNASKED = {("update", "trainjobs/finalizers.trainer.kubeflow.org"), ("list", "endpointslices.discovery.k8s.io")}
"""Granted although not asked for here: see the comment there; and the endpoints of webhooks, where there are any."""
ANYBODYS = {("create", "selfsubjectaccessreviews.authorization.k8s.io")}
"""Asked for, and granted to every account of a cluster (system:basic-user)."""
Permission = tuple[str, str]


def manifests(kind: str = "") -> list[dict[str, Any]]:
    """The objects that are applied together."""
    files = [file for file in sorted(FOLDER.glob("*.yaml")) if file.name not in OPTIONAL]
    objects = [obj for file in files for obj in yaml.safe_load_all(file.read_text("utf-8"))]
    return [obj for obj in objects if not kind or obj["kind"] == kind]


def optional_manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / OPTIONAL[0]).read_text("utf-8")))


def named(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def granted(objects: list[dict[str, Any]] | None = None) -> set[Permission]:
    return {
        (verb, named(group, resource))
        for role in (manifests() if objects is None else objects)
        if role["kind"] in ("ClusterRole", "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked_by(running: Running) -> set[Permission]:
    """In the form of a rule: the subresource before the group."""
    found = set()
    for right in running.door.asked:
        resource, _, sub = right.resource.partition("/")
        plural, _, group = resource.partition(".")
        found.add((right.verb, named(group, f"{plural}/{sub}" if sub else plural)))
    return found


@pytest.mark.medium
def test_the_rights_are_those_that_a_run_asks_for(others_plane: ControlPlane, start: Callable[..., Running]) -> None:
    cluster = others_plane.cluster
    spec = cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")["spec"]
    held = {"finalizers": [names.RUNTIME_IN_USE]}
    for policy in ("volcano", "coscheduling"):
        cluster.create(runtime(policy, metadata=held, **spec, podGroupPolicy={policy: {}}))
    cluster.create(runtime("own", namespace="default", metadata=held, **spec))
    cluster.create(jobset_of_somebody("taken"))
    eventually(lambda: is_finished(cluster.get(JOBSET, "taken", "default")))
    cluster.create(runtime("torch-distribute", **spec))
    create(others_plane, "unknown", runtimeRef={"name": "torch-distribute"})
    cluster.delete(CLUSTER_TRAINING_RUNTIME, "torch-distribute")
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trainwright-system"}})
    objects = [*manifests(), *optional_manifests()]
    rbac = Rbac(objects)
    controller = start("--lease-namespace", "trainwright-system", rbac=rbac, account=ACCOUNT)

    create(others_plane, "own", runtimeRef={"name": "own", "kind": "TrainingRuntime"})
    create(others_plane, "late", "sleep 60", activeDeadlineSeconds=1)
    create(others_plane, "taken")
    create(others_plane, "left", "sleep 60")
    long_ago = renewal_patch(cluster.get(TRAINJOB, "left", "default"), 60, datetime.now(UTC) - timedelta(hours=1))
    long_ago["metadata"]["annotations"][names.OWNER_ANNOTATION] = "kfp/run/train"
    cluster.patch(TRAINJOB, "left", long_ago, "default")
    eventually(lambda: cluster.get(TRAINJOB, "left", "default")["spec"].get("suspend"))
    create(others_plane, "mpi", runtimeRef={"name": "deepspeed-distributed"}, suspend=True)
    for policy in ("volcano", "coscheduling"):
        create(others_plane, policy, runtimeRef={"name": policy}, suspend=True)
    for job in ("mpi", "volcano", "coscheduling"):
        eventually(lambda job=job: find_jobset(others_plane, job))
    assert cluster.get(SECRET, "mpi-mpi-ssh-auth", "default")

    # Somebody has changed what belongs to a TrainJob, and the TrainJob is looked at again: it is put right.
    cluster.patch(CONFIG_MAP, "mpi-mpi-hostfile", {"data": {"hostfile": "other"}}, "default")
    cluster.patch(VOLCANO_GROUP, "volcano", {"spec": {"minMember": 7}}, "default")
    cluster.patch(COSCHEDULING_GROUP, "coscheduling", {"spec": {"minMember": 7}}, "default")
    cluster.patch(JOBSET, "mpi", {"spec": {"suspend": False}}, "default")
    eventually(lambda: [event for event in cluster.list(EVENT, "default").items if event["reason"].startswith("TrainJob")])
    for job in ("mpi", "volcano", "coscheduling", "taken"):
        cluster.patch(TRAINJOB, job, {"metadata": {"labels": {"touched": "yes"}}}, "default")
    eventually(lambda: is_finished(cluster.get(TRAINJOB, "late", "default")))
    eventually(lambda: not cluster.get(TRAINING_RUNTIME, "own", "default")["metadata"].get("finalizers"))

    wanted = granted(objects) - UNASKED
    eventually(lambda: wanted <= asked_by(controller), 20, f"granted and not asked for: {wanted - asked_by(controller)}")
    said = [event["message"] for event in cluster.list(EVENT, "default").items if event["reason"].startswith("TrainJob")]
    assert any("did you mean 'torch-distributed'? known: " in message for message in said), said
    assert controller.end() == 0
    assert controller.door.refused == []
    assert asked_by(controller) - ANYBODYS == wanted
    used = {(verb, named(group, resource)) for verb, group, resource in rbac.used}
    assert used == wanted, "also with the names to which a rule is limited"


class Asked:
    """A cluster that serves all APIs and grants what the manifests do; remembers the access reviews."""

    host = "https://stub"

    def __init__(self, objects: list[dict[str, Any]], account: str):
        self.rbac, self.account = Rbac(objects), account
        self.reviews: list[tuple[Any, str]] = []

    def request(self, _method: str, _path: str, body: Any = None) -> Any:
        if body is None:
            kinds = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, JOBSET)
            return {"resources": [{"name": kind.plural} for kind in kinds]}
        self.reviews.append(reviewed(body))
        return {"status": {"allowed": self.rbac.allows(self.account, *self.reviews[-1])}}


def test_the_self_check_asks_what_the_manifests_grant() -> None:
    cluster = Asked(manifests(), ACCOUNT)
    check(cluster, None, ("trainwright-system", "trainwright-controller"))  # type: ignore[arg-type]
    lease = {(f"{right.verb} {right.resource}", name) for right, name in cluster.reviews if "leases" in right.resource}
    assert lease == {
        ("create leases.coordination.k8s.io", ""),
        ("get leases.coordination.k8s.io", "trainwright-controller"),
        ("update leases.coordination.k8s.io", "trainwright-controller"),
    }
    unchecked = {(verb, named(group, resource)) for verb, group, resource in cluster.rbac.granted() - cluster.rbac.used}
    optional = {
        ("list", "leases.coordination.k8s.io"),
        ("patch", TRAINJOB.resource),
        *WEBHOOKS,
        *(right for right in granted() if "podgroups" in right[1]),
    }
    assert unchecked == UNASKED | optional


def test_the_self_check_of_one_namespace_asks_what_the_page_says_to_grant() -> None:
    """docs/controller.md: the ClusterRole's rules as a Role there, and `get` on clustertrainingruntimes."""
    (role,) = manifests("ClusterRole")
    (lease,) = manifests("Role")
    lease["rules"][1]["resourceNames"] = ["trainwright-controller-team"]
    cluster_wide = {**role, "rules": [rule(["get"], "trainer.kubeflow.org", "clustertrainingruntimes")]}
    subjects = [{"kind": "ServiceAccount", "name": "trainwright-controller", "namespace": "trainwright-system"}]
    own = {**role, "kind": "Role", "metadata": {"name": "own", "namespace": "team"}}
    reference = {"roleRef": {"kind": "Role", "name": "own"}, "subjects": subjects}
    binding = {"apiVersion": role["apiVersion"], "kind": "RoleBinding", "metadata": own["metadata"], **reference}
    others = [obj for obj in manifests() if "Binding" in obj["kind"]]
    cluster = Asked([cluster_wide, lease, own, binding, *others], ACCOUNT)
    check(cluster, "team", ("trainwright-system", "trainwright-controller-team"))  # type: ignore[arg-type]


def rule(verbs: list[str], group: str, resource: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs}


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_whatever_rule_is_missing_is_told_by_the_self_check(kind: str) -> None:
    objects = manifests()
    (role,) = [obj for obj in objects if obj["kind"] == kind]
    for number, removed in enumerate(role["rules"]):
        is_optional = removed["resources"] in (["podgroups"], ["trainjobs/finalizers"]) or removed["verbs"] == ["list"]
        if is_optional or removed["apiGroups"] == ["admissionregistration.k8s.io"]:
            continue
        less = {**role, "rules": [one for other, one in enumerate(role["rules"]) if other != number]}
        cluster = Asked([less if obj is role else obj for obj in objects], ACCOUNT)
        with pytest.raises(RequirementsNotMet, match=removed["resources"][0].partition("/")[0]) as told:
            check(cluster, None, ("trainwright-system", "trainwright-controller"))  # type: ignore[arg-type]
        name = removed.get("resourceNames", [""])[0]
        assert not name or f"name {name}" in str(told.value)


def test_bindings_name_what_is_there() -> None:
    (account,) = manifests("ServiceAccount")
    roles = {(role["kind"], role["metadata"]["name"]) for role in (*manifests("ClusterRole"), *manifests("Role"))}
    optional_role, optional_binding = optional_manifests()
    roles.add((optional_role["kind"], optional_role["metadata"]["name"]))
    for binding in (*manifests("ClusterRoleBinding"), *manifests("RoleBinding"), optional_binding):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["metadata"]["name"], account["metadata"]["namespace"])


def test_secrets_are_never_read_and_created_only_with_the_optional_file() -> None:
    assert not [right for right in granted() if right[1] == "secrets"]
    assert granted(optional_manifests()) == {("create", "secrets")}


def test_the_pod_is_a_pod_that_restricted_namespaces_take() -> None:
    (deployment,) = manifests("Deployment")
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "controller", "namespace": "trainwright-system"}
    admitted = admit({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    assert not admitted.warnings
    (container,) = template["spec"]["containers"]
    assert template["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    selector = {"app.kubernetes.io/name": "trainwright-controller"}.items()
    assert selector <= template["metadata"]["labels"].items()
    for obj in (deployment, *manifests("PodDisruptionBudget")):
        assert obj["spec"]["selector"]["matchLabels"].items() == selector


@pytest.mark.parametrize("kind", ["Namespace", "ServiceAccount"])
def test_the_other_objects_are_admitted(kind: str) -> None:
    (obj,) = manifests(kind)
    assert admit(obj).object["metadata"]["name"] == obj["metadata"]["name"]


def test_the_command_takes_the_arguments_and_serves_the_ports() -> None:
    (deployment,) = manifests("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    program, name = container["command"]
    assert program == "trainwright"
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    given = command.make_context(name, list(container["args"])).params
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (given["metrics_port"], given["health_port"]) == (ports["metrics"], ports["health"])
    assert given["bind_address"] == "0.0.0.0"


@pytest.mark.medium
def test_the_controller_needs_no_server() -> None:
    code = "import sys, trainwright.trainer.standalone.process\nprint(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"starlette", "uvicorn", "jwt", "zstandard", "httptools", "uvloop", "wsproto", "torch"}


@pytest.mark.medium
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_puts_it_together() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = [obj["kind"] for obj in yaml.safe_load_all(done.stdout)]
    assert sorted(built) == sorted(obj["kind"] for obj in manifests() if obj["kind"] != "Kustomization")
