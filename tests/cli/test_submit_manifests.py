"""`trainwright submit -f`: fields that nobody knows, warnings, transient errors, quotas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.faulty_api import ScriptedApi

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import copy_of, labels_of, name_of
from trainwright.embedded.plane import ControlPlane
from trainwright.runtimes import bundled_runtime

Run = Callable[..., Any]
pytestmark = pytest.mark.medium
MISSPELT = {"numNode": 2, "command": ["true"]}
UNKNOWN = 'spec.trainer.numNode: unknown field "spec.trainer.numNode" (did you mean numNodes?)\n'
WARNING = 'warning: {}: unknown field "spec.trainer.numNode"\n'


@pytest.fixture
def job(trainjob: Any) -> Callable[..., dict[str, Any]]:
    """A suspended TrainJob, which needs no pods."""
    return lambda name, **spec: trainjob(name, suspend=True, **spec)


def names_of(plane: ControlPlane) -> set[str]:
    return {name_of(one) for one in plane.cluster.list(TRAINJOB).items}


@pytest.mark.parametrize(
    "options",
    [
        ("--dry-run", "client", "--kubeconfig", "/nowhere"),
        ("--dry-run", "server"),
        (),
        ("--submission-mode", "jobset"),
        ("--submission-mode", "jobset", "--dry-run", "server"),
        ("--queue-name", "q", "--dry-run", "client", "--kubeconfig", "/nowhere"),
        ("--queue-name", "q", "--dry-run", "server"),
        ("--queue-name", "q"),
        ("--run-id", "misspelt", "--submission-mode", "jobset"),
    ],
)
def test_a_misspelt_field_is_rejected_with_a_suggestion(
    plane: ControlPlane, run: Run, write: Any, job: Any, options: tuple[str, ...]
) -> None:
    done = run("submit", "-f", write(job("misspelt", trainer=MISSPELT)), *options)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    if "--queue-name" in options and "client" in options:
        assert 'unknown field "spec.trainer.numNode"' in line
    else:
        assert line.startswith("spec.trainer.numNode: ")
        assert line.endswith("(did you mean numNodes?)")
    assert not {name for name in names_of(plane) if "misspelt" in name}


def test_no_document_is_created_if_one_has_an_unknown_field(plane: ControlPlane, run: Run, write: Any, job: Any) -> None:
    done = run("submit", "-f", write(job("good"), job("misspelt", trainer=MISSPELT)))
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", UNKNOWN)
    assert not {"good", "misspelt"} & names_of(plane)


@pytest.mark.parametrize("options", [(), ("--submission-mode", "jobset"), ("--dry-run", "server"), ("--dry-run", "client")])
def test_validate_warn_and_ignore(plane: ControlPlane, run: Run, write: Any, job: Any, options: tuple[str, ...]) -> None:
    file = write(job("tolerated", trainer=MISSPELT))
    for validate, said in (("warn", WARNING.format("tolerated")), ("ignore", "")):
        done = run("submit", "-f", file, "--validate", validate, *options)
        assert (done.exit_code, done.stderr) == (0, said), done.output
        if "--dry-run" not in options:
            run("delete", "tolerated", *options)


def test_settings_are_always_validated_strictly(run: Run, write: Any, job: Any) -> None:
    done = run("submit", "-f", write(job("a")), "--run-id", "r", "--validate", "warn")
    assert done.exit_code == 2
    assert "always validated strictly" in done.stderr
    assert run("submit", "-f", write(job("a")), "--validate", "sometimes").exit_code == 2


@pytest.mark.parametrize("options", [(), ("--dry-run", "server"), ("--dry-run", "client"), ("--submission-mode", "jobset")])
def test_a_warning_of_admission_is_shown_once(
    plane: ControlPlane, run: Run, write: Any, job: Any, options: tuple[str, ...]
) -> None:
    name = "-".join(["discouraged", *(option.strip("-") for option in options)])
    discouraged = job(name)
    discouraged["metadata"]["finalizers"] = ["unqualified"]
    done = run("submit", "-f", write(discouraged), *options)
    assert done.exit_code == 0, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"warning: {name}: ")
    assert "finalizer" in line


def test_diff_warns_of_a_misspelt_field(plane: ControlPlane, run: Run, write: Any, job: Any) -> None:
    done = run("diff", "-f", write(job("new", trainer=MISSPELT)))
    assert done.exit_code == 1
    assert done.stderr == WARNING.format("new")


@pytest.mark.parametrize("jobset_only", [False, True], ids=["trainjob", "jobset"])
@pytest.mark.parametrize(
    "faults",
    [
        ("429-after",),
        ("429",),
        ("503",),
        ("500-text",),
        ("reset-before",),
        ("reset-after",),
        ("cut",),
        ("reset-after", "503", "cut"),
    ],
)
def test_a_passing_fault_leaves_one_job(
    plane: ControlPlane, run: Run, write: Any, job: Any, tmp_path: Path, faults: tuple[str, ...], jobset_only: bool
) -> None:
    name = f"faulty-{'-'.join(faults)}"
    with ScriptedApi(tmp_path, plane._home.kubeconfig, *faults, jobset_only=jobset_only) as api:
        done = run("submit", "-f", write(job(name)), "--kubeconfig", str(api.kubeconfig))
        assert api.met == [f"create: {fault}" for fault in faults]
        assert done.exit_code == 0, done.stderr
        assert done.stdout == f"TrainJob default/{name} created\n"
        again = run("submit", "-f", write(job(name)), "--kubeconfig", str(api.kubeconfig))
        assert (again.exit_code, "already exists" in again.stderr) == (1, True)
        assert run("delete", name, "--kubeconfig", str(api.kubeconfig)).exit_code == 0


def test_a_job_that_was_there_is_not_reported_as_created(
    plane: ControlPlane, run: Run, write: Any, job: Any, tmp_path: Path
) -> None:
    file = write(job("there"))
    assert run("submit", "-f", file).exit_code == 0
    with ScriptedApi(tmp_path, plane._home.kubeconfig, "reset-before", "reset-after") as api:
        done = run("submit", "-f", file, "--kubeconfig", str(api.kubeconfig))
    assert done.exit_code == 1
    assert done.stderr == "TrainJob 'there' already exists; delete it or choose another name\n"
    run("delete", "there")


@pytest.mark.parametrize("options", [(), ("--run-id", "over-quota"), ("--dry-run", "server")])
def test_an_exceeded_quota_is_bad_input_and_no_missing_permission(
    plane: ControlPlane, run: Run, write: Any, job: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with ScriptedApi(tmp_path, plane._home.kubeconfig, "quota") as api:
        done = run("submit", "-f", write(job("over-quota")), "--kubeconfig", str(api.kubeconfig), *options)
    assert api.met == ["create: quota"]
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert "exceeded quota: q" in line
    assert "the ResourceQuota q is used up: delete what counts against it, such as finished jobs, or have it raised" in line
    assert not {word for word in ("permission", "RBAC", "rbac", "step") if word in line}


def test_the_server_records_the_field_manager(plane: ControlPlane, run: Run, write: Any, job: Any) -> None:
    assert run("submit", "-f", write(job("managed")), "-o", "json").exit_code == 0
    stored = plane.cluster.get(TRAINJOB, "managed", "default")
    assert {entry["manager"] for entry in stored["metadata"]["managedFields"]} == {"trainwright"}
    run("delete", "managed")


def test_a_generated_name(plane: ControlPlane, run: Run, write: Any, job: Any, tmp_path: Path) -> None:
    nameless = job("x")
    nameless["metadata"] = {"generateName": "generated-", "labels": {"of": "generated"}}
    with ScriptedApi(tmp_path, plane._home.kubeconfig, "reset-after") as api:
        done = run("submit", "-f", write(nameless), "-o", "json", "--kubeconfig", str(api.kubeconfig))
    made = [one for one in plane.cluster.list(TRAINJOB).items if labels_of(one).get("of") == "generated"]
    assert [name_of(one) for one in made] == [name_of(json.loads(done.stdout))]
    run("delete", name_of(made[0]))


def test_an_unknown_runtime_is_rejected_with_those_that_exist(plane: ControlPlane, run: Run, write: Any, job: Any) -> None:
    done = run("submit", "-f", write(job("nowhere", runtimeRef={"name": "torch-distribute"})))
    assert done.exit_code == 2, done.output
    assert "torch-distributed" in done.stderr.partition('torch-distribute"')[2]
    assert "trl-sft" in done.stderr


@pytest.mark.parametrize("mode", [(), ("--submission-mode", "jobset")], ids=["trainjob", "jobset"])
def test_a_server_dry_run_checks_a_trainjob_with_the_runtime_of_the_same_file(
    plane: ControlPlane, run: Run, write: Any, job: Any, mode: tuple[str, ...]
) -> None:
    runtime = copy_of(bundled_runtime("torch-distributed"))
    runtime |= {"kind": "TrainingRuntime", "metadata": {"name": "beside"}}
    trainjob = job("both", runtimeRef={"kind": "TrainingRuntime", "name": "beside"})
    options = ("--dry-run", "server", *mode)
    done = run("submit", "-f", write(runtime, trainjob), *options)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "TrainJob default/both created (server dry run)"
    new = run("diff", "-f", write(runtime, trainjob), *mode)
    assert (new.exit_code, "+  name: both\n" in new.stdout) == (1, True), new.output
    trainjob["spec"]["trainer"]["env"] = [{"name": "PET_NNODES", "value": "2"}]
    refused = run("submit", "-f", write(runtime, trainjob), *options)
    assert refused.exit_code == 2, refused.output
    assert "must not have reserved envs" in refused.stderr
    del trainjob["spec"]["trainer"]["env"]
    early = run("submit", "-f", write(trainjob, runtime), *options)
    assert early.exit_code == 2, "it would be created before its runtime"
    assert not {"both"} & names_of(plane)
