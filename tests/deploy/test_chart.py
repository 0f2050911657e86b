"""The Helm chart: the permissions that the code needs, runtimes, and a controller, as Helm itself renders and installs them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import trainjob
from support.client_environments import ROOT
from support.cluster_under_test import embedded, kubeconfig_of_account
from support.pod_security import pods_in, violations
from support.rbac_evaluator import Rbac

from trainwright import __version__
from trainwright.api.admission.admit import admit
from trainwright.api.errors import Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import CLAIM, CLUSTER_ROLE_BINDING, ROLE_BINDING, SERVICE_ACCOUNT, TRAINJOB
from trainwright.api.objects import name_of
from trainwright.cluster import connect
from trainwright.cluster.refusals import Permission
from trainwright.jobs.submit.rbac_manifests import Extras, ServiceAccount, rbac_manifests
from trainwright.runtimes import bundled_runtime
from trainwright.runtimes.image import DEFAULT_IMAGE, image
from trainwright.submission.jobs_client import Mode

CHART = ROOT / "deploy" / "chart"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
RUNTIMES = ("causal-lm-evaluation", "trl-dpo", "trl-kto", "trl-sft", "workspace-step")
WITHOUT_GUARD = {"guard": {"enabled": False}}
EVERYTHING: dict[str, Any] = {
    "clients": [
        {"namespace": "team", "serviceAccounts": ["runner"], "create": True, "pipelines": True},
        {"namespace": "team", "serviceAccounts": ["airflow:worker", "runner"], "credentials": True},
        {"namespace": "other", "serviceAccounts": ["team:runner"], "mode": "auto", "mpiFlux": True},
    ],
    "image": {"name": "registry.example.com/ml/{image}", "tag": "7", "pullSecrets": ["registry"], "pullPolicy": "Always"},
    "workspaces": [{"name": "workspace", "namespace": "team", "size": "5Gi", "storageClass": "shared"}],
    "page": {
        "enabled": True,
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "airflowUrl": "https://airflow.example.com",
        "kfpUrl": "https://kfp.example.com",
        "ingress": {"host": "train.example.com", "className": "nginx", "tlsSecret": "train-tls", "annotations": {"a": "b"}},
    },
    "controller": {
        "enabled": True,
        "mpiFlux": True,
        "takeOverWebhooks": True,
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "metrics": {"service": True, "serviceMonitor": True},
        "networkPolicy": {"enabled": True, "metricsFrom": {"team": "monitoring"}},
    },
}


def generated_files() -> dict[Path, str]:
    spec = importlib.util.spec_from_file_location("chart_files", ROOT / "docs" / "chart_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.files())


def test_generated_chart_files_are_up_to_date() -> None:
    expected = generated_files()
    written = {CHART / "Chart.yaml", *(CHART / "files").rglob("*.yaml"), *(ROOT / "deploy/runtimes").iterdir()}
    assert written == set(expected)
    assert {path: path.read_text("utf-8") for path in expected} == expected, "run `make docs`"


def test_every_value_has_a_description_and_a_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))

    def undescribed(part: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, value in (part.get("properties") or {}).items():
            where = f"{path}.{name}"
            if "description" not in value and value.get("type") != "object":
                found.append(where)
            found += undescribed(value, where) + undescribed(value.get("items") or {}, f"{where}[]")
        return found

    described = undescribed(schema, "")
    assert described in ([], [".workspaces", ".clients"]), described

    def same_names(values: dict[str, Any], part: dict[str, Any], path: str) -> None:
        properties = part.get("properties")
        if not properties:
            return
        assert set(values) == set(properties) - {"global"}, path
        for name, value in values.items():
            if isinstance(value, dict):
                same_names(value, properties[name], f"{path}.{name}")

    same_names(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), schema, "")


def plain(objects: list[dict[str, Any]]) -> list[str]:
    """Without what Helm adds, in an order that can be compared."""
    found = []
    for obj in objects:
        metadata = {key: value for key, value in obj["metadata"].items() if key != "labels"}
        found.append(json.dumps({**obj, "metadata": metadata}, sort_keys=True))
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.trainjob, Mode.jobset, Mode.auto])
@pytest.mark.parametrize("more", [False, True])
def test_permissions_are_those_of_the_command(helm: Any, mode: Mode, more: bool) -> None:
    client = {"namespace": "team", "serviceAccounts": ["runner", "airflow:worker"], "mode": str(mode)}
    client |= {"mpiFlux": more, "credentials": more, "pipelines": more}
    guard = {"enabled": more, "namespace": "team", "mode": str(mode)}
    rendered = helm.objects({"clients": [client], "runtimes": {"enabled": False}, "guard": guard})
    accounts = [ServiceAccount("team", "runner"), ServiceAccount("airflow", "worker")]
    extras = Extras(more, more, more, image("controller", DEFAULT_IMAGE) if more else "")
    assert plain(rendered) == plain(rbac_manifests("team", accounts, mode, extras))


@pytest.mark.slow
def test_guard_of_all_namespaces_is_the_default(helm: Any) -> None:
    rendered = helm.objects({"runtimes": {"enabled": False}})
    extras = Extras(guard_image=image("controller", DEFAULT_IMAGE), guards_all=True)
    printed = rbac_manifests("team", [], Mode.auto, extras)
    expected = [obj for obj in printed if "guard" in obj["metadata"]["name"]]
    assert plain(rendered) == plain(expected)


@pytest.mark.slow
def test_everything_is_admitted_and_made_once(helm: Any) -> None:
    objects = helm.objects(EVERYTHING)
    names = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects]
    assert len(set(names)) == len(names)
    for obj in objects:
        if obj["kind"] != "ServiceMonitor":  # of the Prometheus operator
            admit(obj)
        assert obj["metadata"]["labels"]["app.kubernetes.io/version"] == __version__
    (policy,) = (obj["spec"] for obj in objects if obj["kind"] == "NetworkPolicy")
    assert all(rule.get("to") for rule in policy["egress"]), "a rule without `to` reaches everything"
    pods = list(pods_in(objects))
    assert pods
    assert [violation for pod in pods for violation in violations(pod)] == []
    assert all(obj["kind"] == "ClusterTrainingRuntime" for obj in helm.objects(WITHOUT_GUARD))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNTIMES)
def test_runtimes_are_those_of_the_package(helm: Any, name: str) -> None:
    (rendered,) = helm.objects({**WITHOUT_GUARD, "runtimes": {"names": [name]}})
    bundled = bundled_runtime(name)
    assert bundled is not None

    def without_policy(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_policy(part) for key, part in value.items() if key != "imagePullPolicy"}
        return [without_policy(part) for part in value] if isinstance(value, list) else value

    assert without_policy(rendered["spec"]) == bundled["spec"]
    assert bundled["metadata"]["labels"].items() <= rendered["metadata"]["labels"].items()
    (changed,) = helm.objects({**WITHOUT_GUARD, "image": EVERYTHING["image"], "runtimes": {"names": [name]}})
    own = bundled_runtime(name, "registry.example.com/ml/{image}:7")
    assert own is not None
    pods = [job["template"]["spec"]["template"]["spec"] for job in changed["spec"]["template"]["spec"]["replicatedJobs"]]
    assert all(pod.pop("imagePullSecrets") == [{"name": "registry"}] for pod in pods)
    assert without_policy(changed["spec"]) == own["spec"]


@pytest.mark.slow
def test_the_controller_is_that_of_kustomize(helm: Any) -> None:
    rendered = helm.objects(
        {
            **WITHOUT_GUARD,
            "controller": {"enabled": True, "mpiFlux": True, "takeOverWebhooks": True},
            "runtimes": {"enabled": False},
        }
    )
    folder = ROOT / "deploy" / "controller"
    files = [file for file in folder.glob("*.yaml") if file.name not in ("kustomization.yaml", "namespace.yaml")]
    (deployment,) = (obj for obj in rendered if obj["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["args"].remove("--take-over-webhooks")  # optional in kustomize
    expected = [obj for file in files for obj in yaml.safe_load_all(file.read_text("utf-8"))]

    def compared(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
        found = {}
        for obj in objects:
            if obj["kind"].endswith("Binding"):  # named for the account in the chart
                obj["metadata"]["name"] = obj["roleRef"]["name"]
            if obj["kind"] == "Deployment":
                obj["spec"].pop("selector")
                template = obj["spec"]["template"]
                template["metadata"].pop("labels")
                template["spec"]["topologySpreadConstraints"][0].pop("labelSelector")
                container = template["spec"]["containers"][0]
                container.pop("imagePullPolicy", None)
                container.pop("image")
            if obj["kind"] == "PodDisruptionBudget":
                obj["spec"].pop("selector")
            found[obj["kind"], obj["metadata"]["name"]] = {key: part for key, part in obj.items() if key != "metadata"}
        return found

    own = compared(rendered)
    own.pop(("Service", "trainwright-controller-metrics"))
    assert own == compared(expected)


@pytest.mark.slow
def test_a_controller_of_one_namespace_has_rights_there_only(helm: Any) -> None:
    objects = helm.objects(
        {
            **WITHOUT_GUARD,
            "controller": {"enabled": True, "namespace": "team", "mpiFlux": True},
            "runtimes": {"enabled": False},
        }
    )
    (deployment,) = (obj for obj in objects if obj["kind"] == "Deployment")
    assert "--namespace=team" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects if obj["kind"].endswith("Role")}
    (everywhere,) = (obj["rules"] for (kind, _), obj in roles.items() if kind == "ClusterRole")
    assert everywhere == [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["clustertrainingruntimes"], "verbs": ["get"]}]
    rbac = Rbac(objects)
    account = "trainwright-system:trainwright-controller"
    for namespace, allowed in (("team", True), ("other", False)):
        for verb, resource in (("patch", "configmaps"), ("create", "secrets"), ("create", "jobsets.jobset.x-k8s.io")):
            assert rbac.allows(account, Permission(verb, resource, namespace)) is allowed, (verb, resource, namespace)
    lease = Permission("update", "leases.coordination.k8s.io", "trainwright-system")
    assert rbac.allows(account, lease, "trainwright-controller-team")
    assert not rbac.allows(account, lease, "trainwright-controller")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"client": []}, "client"),
        ({"clients": [{"namespace": "team"}]}, "serviceAccounts"),
        ({"clients": [{"namespace": "team", "serviceAccounts": ["a:b:c"]}]}, "serviceAccounts"),
        ({"clients": [{"namespace": "team", "serviceAccounts": ["a"], "mode": "fast"}]}, "mode"),
        ({"workspaces": [{"name": "w", "namespace": "n", "size": "big"}]}, "size"),
        ({"controller": {"replicas": 0}}, "replicas"),
        ({"runtimes": {"names": ["trl"]}}, "names"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Any, values: dict[str, Any], told: str) -> None:
    with pytest.raises(Exception, match=told):
        helm.objects(values)


@pytest.mark.medium
@needs_kubectl
def test_kustomize_sets_the_images_of_the_runtimes() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(ROOT / "deploy/runtimes")], capture_output=True, text=True, check=True)
    rendered = {obj["metadata"]["name"]: obj for obj in yaml.safe_load_all(done.stdout)}
    assert rendered == {name: bundled_runtime(name) for name in RUNTIMES}


@pytest.mark.slow
def test_helm_finds_no_fault(helm: Any) -> None:
    found = helm("lint")
    assert not [message for message in found.get("messages") or [] if message.get("severity") in ("ERROR", "WARNING", 2, 3)], (
        found
    )


@pytest.mark.slow
@needs_kubectl
def test_installed_upgraded_and_uninstalled_on_a_cluster(helm: Any, tmp_path: Path) -> None:
    with embedded(tmp_path, node=True) as kubeconfig:
        admin = connect(kubeconfig)
        before = {kind: [name_of(own) for own in admin.list(kind).items] for kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING)}
        for name in ("trainwright-system", "team", "other", "airflow"):
            admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        first = {
            **EVERYTHING,
            "controller": {"enabled": True, "networkPolicy": {"enabled": True}},
            "runtimes": {"enabled": False},
            "page": {**EVERYTHING["page"], "ingress": {}},  # it serves no Ingresses
        }
        helm("install", first, kubeconfig=str(kubeconfig))
        runner = connect(kubeconfig_of_account(kubeconfig, tmp_path, "team", "runner"))
        runner.create(trainjob("mine", namespace="team", suspend=True))
        assert [item["metadata"]["name"] for item in runner.list(TRAINJOB, "team").items] == ["mine"]
        with pytest.raises(Forbidden):
            runner.list(SERVICE_ACCOUNT, "team")
        with pytest.raises(Forbidden):
            runner.list(TRAINJOB, "kubeflow-system")

        second = {**first, "clients": first["clients"][2:], "workspaces": []}
        helm("upgrade", second, kubeconfig=str(kubeconfig))
        with pytest.raises(Unauthorized):  # the account that the release had made is gone
            runner.list(TRAINJOB, "other")
        with pytest.raises(NotFound):
            admin.get(SERVICE_ACCOUNT, "runner", "team")
        admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": "team"}})
        runner = connect(kubeconfig_of_account(kubeconfig, tmp_path, "team", "runner"))
        with pytest.raises(Forbidden):
            runner.list(TRAINJOB, "team")
        assert runner.list(TRAINJOB, "other").items == []
        assert admin.get(CLAIM, "workspace", "team"), "data outlive the release"
        helm("uninstall", kubeconfig=str(kubeconfig))
        assert admin.get(CLAIM, "workspace", "team")
        for kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
            assert [name_of(left) for left in admin.list(kind).items] == before[kind]
