"""`trainwright rbac`: several applications in one cluster get their rights beside each other, and each only its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.rbac_evaluator import Rbac
from typer.testing import CliRunner

from trainwright.api.kinds import EVENT, JOBSET, POD, TRAINJOB
from trainwright.cli import app
from trainwright.cluster.refusals import Permission
from trainwright.jobs.submit.rbac import CALLS, CALLS_OF, JOBSET_MODE_CALLS, READ_WORKFLOW, ApiCall

DEPLOY = Path(__file__).parents[2] / "deploy"
Print = Callable[..., str]


@pytest.fixture
def printed() -> Print:
    def run(*options: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["rbac", *options])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    return run


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def applied(*manifests: str) -> list[dict[str, Any]]:
    """What is in a cluster after `kubectl apply` of each: one of the same kind and name replaces the one before."""
    there = {}
    for text in manifests:
        for obj in documents(text):
            there[obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]] = obj
    return list(there.values())


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("rbac.yaml", ("--for", "kfp", "--namespace", "kubeflow")),
        ("rbac-airflow.yaml", ("--for", "airflow", "--namespace", "airflow", "--credentials")),
        ("rbac-jobset.yaml", ("--for", "kfp", "--namespace", "kubeflow", "--mode", "jobset")),
        ("rbac-jobset-mpi-flux.yaml", ("--for", "kfp", "--namespace", "kubeflow", "--mode", "jobset", "--mpi-flux")),
    ],
)
def test_the_files_are_what_the_command_prints(printed: Print, file: str, options: tuple[str, ...]) -> None:
    fresh = printed(*options)
    assert (DEPLOY / file).read_text("utf-8") == fresh, "stale: run `make docs`"


def may(rbac: Rbac, account: str, call: ApiCall, namespace: str) -> bool:
    return rbac.allows(account, call.permission(namespace), call.name)


def test_a_second_namespace_takes_nothing_from_the_first(printed: Print) -> None:
    one = printed("-n", "one", "--service-account", "runner")
    two = printed("-n", "two", "--service-account", "runner", "--service-account", "airflow:worker")
    by_jobset = printed("-n", "one", "--service-account", "other", "--mode", "jobset")
    for order in ((one, two, by_jobset), (by_jobset, two, one)):
        rbac = Rbac(applied(*order))
        for call in CALLS:
            assert may(rbac, "one:runner", call, "one") == call.is_granted, call
            assert may(rbac, "two:runner", call, "two") == call.is_granted, call
            assert may(rbac, "airflow:worker", call, "two") == call.is_granted, call
        for call in JOBSET_MODE_CALLS:
            assert may(rbac, "one:other", call, "one") == call.is_granted, call
        assert not rbac.allows("one:runner", Permission("get", TRAINJOB.resource, "two"))
        assert not rbac.allows("two:runner", Permission("list", POD.resource, "one"))
        assert not rbac.allows("one:other", Permission("create", TRAINJOB.resource, "one"))


@pytest.mark.parametrize(("mode", "calls"), CALLS_OF.items())
def test_each_mode_gets_its_calls_and_no_more(printed: Print, mode: str, calls: tuple[ApiCall, ...]) -> None:
    rbac = Rbac(documents(printed("-n", "team", "--service-account", "runner", "--mode", mode)))
    assert all(may(rbac, "team:runner", call, "team") == call.is_granted for call in calls)
    assert rbac.granted() == rbac.used


@pytest.mark.parametrize("mode", ["trainjob", "jobset", "auto"])
def test_secrets_are_created_only_where_it_is_asked_for_and_never_read(printed: Print, mode: str) -> None:
    options = ("-n", "team", "--service-account", "runner", "--mode", mode)
    asked = (
        ((), set[str]()),
        (("--mpi-flux",), {"create"} if mode != "trainjob" else set[str]()),
        (("--credentials",), {"create", "patch", "delete"}),
    )
    for more, granted in asked:
        rbac = Rbac(documents(printed(*options, *more)))
        assert {verb for verb, _, resource in rbac.granted() if resource == "secrets"} == granted


def test_initializers_of_data_caches_get_their_account_on_request(printed: Print) -> None:
    options = ("-n", "team", "--service-account", "runner")
    assert "cache" not in printed(*options)
    manifests = documents(printed(*options, "--data-cache"))
    account = "team:kubeflow-trainer-cache-initializer"
    assert [obj["metadata"] for obj in manifests if obj["kind"] == "ServiceAccount"] == [
        {"name": "kubeflow-trainer-cache-initializer", "namespace": "team"}
    ]
    rbac = Rbac(manifests)
    assert rbac.allows(account, Permission("get", TRAINJOB.resource, "team"))
    assert rbac.allows(account, Permission("create", JOBSET.resource, "team"))
    assert not rbac.allows(account, Permission("create", JOBSET.resource, "other"))
    assert not rbac.allows("team:runner", Permission("create", JOBSET.resource, "team"))
    assert "secrets" not in {resource for _, _, resource in rbac.granted()}  # the control plane makes the key of a cache


@pytest.mark.parametrize(
    "permission",
    [
        *(Permission(verb, POD.resource, "team") for verb in ("create", "delete")),
        *(Permission(verb, f"{POD.resource}/log", "team") for verb in ("list", "watch")),
        *(Permission(verb, EVENT.resource, "team") for verb in ("get", "watch")),
        Permission("list", "leases.coordination.k8s.io", "kubeflow-system"),
        Permission("get", "leases.coordination.k8s.io", "team"),
        Permission("list", "nodes"),
        Permission("get", "secrets", "team"),
    ],
    ids=str,
)
def test_unused_permissions_are_not_granted(printed: Print, permission: Permission) -> None:
    rbac = Rbac(documents(printed("-n", "team", "--service-account", "runner")))
    assert not rbac.allows("team:runner", permission, "trainer.kubeflow.org")


def test_the_orchestrators_accounts(printed: Print) -> None:
    kfp, airflow = (Rbac(documents(printed("-n", "team", "--for", name))) for name in ("kfp", "airflow"))
    assert kfp.allows("team:pipeline-runner", Permission("create", TRAINJOB.resource, "team"))
    for account in ("airflow:airflow-worker", "airflow:airflow-triggerer"):
        assert airflow.allows(account, Permission("create", TRAINJOB.resource, "team"))
    own = Rbac(documents(printed("-n", "team", "--for", "kfp", "--service-account", "mine")))
    assert own.allows("team:mine", Permission("create", TRAINJOB.resource, "team"))
    assert not own.allows("team:pipeline-runner", Permission("create", TRAINJOB.resource, "team"))


def test_workflows_are_read_by_steps_of_pipelines_only(printed: Print) -> None:
    def reads(*options: str) -> bool:
        return Rbac(documents(printed("-n", "team", *options))).allows("team:runner", READ_WORKFLOW.permission("team"))

    assert reads("--for", "kfp", "--service-account", "runner")
    assert not reads("--service-account", "runner")
    assert not reads("--for", "airflow", "--service-account", "runner")


@pytest.mark.parametrize(
    ("options", "namespace", "arguments"),
    [
        (["--guard"], "team", ["--namespace=team", "--submission-mode=trainjob"]),
        (["--guard", "--mode", "jobset"], "team", ["--namespace=team", "--submission-mode=jobset"]),
        (["--guard", "-A", "--mode", "auto"], "trainwright-system", ["--submission-mode=auto"]),
    ],
)
def test_guard_of_a_namespace_or_of_all(
    printed: Print, monkeypatch: pytest.MonkeyPatch, options: list[str], namespace: str, arguments: list[str]
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", "registry.example.com/{image}:1")
    objects = documents(printed("-n", "team", "--for", "kfp", *options))
    assert (objects[0]["kind"] == "Namespace") is ("-A" in options), "its roles are in it"
    (deployment,) = (obj for obj in objects if obj["kind"] == "Deployment")
    assert deployment["metadata"]["namespace"] == namespace
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"]) == ("registry.example.com/controller:1", arguments)
    rbac = Rbac(objects)
    guard, client = f"{namespace}:trainwright-guard", "team:pipeline-runner"
    assert rbac.allows(guard, Permission("list", "pods", "team"))
    assert rbac.allows(guard, Permission("list", "pods", "other")) is ("-A" in options)
    assert not rbac.allows(guard, Permission("get", "secrets", "team"))
    assert rbac.allows(guard, Permission("update", "leases.coordination.k8s.io", namespace), "trainwright-guard")
    assert not rbac.allows(guard, Permission("update", "leases.coordination.k8s.io", namespace), "another")
    assert rbac.allows(client, Permission("get", "leases.coordination.k8s.io", "team"), "trainwright-guard")
    assert not rbac.allows(client, Permission("update", "leases.coordination.k8s.io", namespace), "trainwright-guard")


def test_all_namespaces_are_for_the_guard_alone(printed: Print) -> None:
    assert "is for --guard" in printed("-n", "team", "--for", "kfp", "-A", code=2)
