"""`trainwright validate`: every problem with its line, warnings, exit codes, JSON."""

import json
from typing import Any

import pytest

RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata:
  name: rt
  labels:
    trainer.kubeflow.org/support: deprecated
spec:
  mlPolicy:
    torch: {}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata:
              labels:
                trainer.kubeflow.org/trainjob-ancestor-step: trainer
            spec:
              template:
                spec:
                  containers:
                    - name: node
"""
TRAINJOB = """---
# a comment moves the lines
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: demo
spec:
  runtimeRef:
    name: rt
  trainer:
    image: example.com/train:1
"""


@pytest.fixture
def manifest(tmp_path: Any) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "manifest.yaml"
        path.write_text(text, "utf-8")
        return str(path)

    return write


def test_valid_manifest_reports_no_problems(run: Any, manifest: Any) -> None:
    answer = run("validate", "-f", manifest(RUNTIME + TRAINJOB))
    assert answer.exit_code == 0, answer.output
    assert "2 objects, no problems found" in answer.stdout
    assert "warning: " not in answer.stdout
    lines = answer.stderr.splitlines()
    assert all(line.startswith("warning: ") for line in lines)
    assert len(set(lines)) == len(lines)
    assert "is deprecated" in answer.stderr


def test_every_problem_has_its_line(run: Any, manifest: Any) -> None:
    file = manifest(RUNTIME.replace("torch: {}", "torch: {}\n    mpi: {}") + TRAINJOB + "    numNodes: -1\n    comand: [a]\n")
    answer = run("validate", "-f", file)
    assert answer.exit_code == 2
    lines = answer.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{file}:{number}" for number in (8, 35, 36)]
    assert ": spec.mlPolicy: FieldValueInvalid: " in lines[0]
    assert ": spec.trainer.numNodes: FieldValueInvalid: " in lines[1]
    assert lines[2].endswith("(did you mean command?)")


def test_rules_of_a_policy_are_asked_too(run: Any, manifest: Any) -> None:
    answer = run("validate", "-f", manifest(RUNTIME + TRAINJOB + "    env: [{name: PET_NNODES, value: x}]\n"))
    assert answer.exit_code == 2
    assert ": spec.trainer.env: " in answer.stdout
    assert "PET_NNODES" in answer.stdout


def test_json(run: Any, manifest: Any) -> None:
    answer = run("validate", "--output", "json", "-f", manifest(TRAINJOB + "    numNodes: x\n"))
    assert answer.exit_code == 2
    (problem,) = json.loads(answer.stdout)["problems"]
    assert (problem["line"], problem["path"], problem["reason"]) == (12, "spec.trainer.numNodes", "FieldValueTypeInvalid")
    assert json.loads(answer.stdout)["warnings"][0]["reason"] == "Unchecked"


def test_jobs_that_cannot_start_are_a_warning(run: Any, manifest: Any) -> None:
    answer = run("validate", "-f", manifest(RUNTIME + TRAINJOB.replace("image: example.com/train:1", "numNodes: 1")))
    assert answer.exit_code == 0
    assert "no Job can be created for the step node: spec.template.spec.containers[0].image: Required value" in answer.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("- 1\n", "is a list"),
        ("kind: TrainJob\nmetadata:\n", ":1: (object): BadRequest: metadata: must be an object"),
        ("kind: List\nitems:\n- kind: TrainJob\n  metadata: {name: A}\n", ":4: metadata.name: "),
        ("spec: 2026-11-20\n", ":1: "),
        ("", "manifest.yaml: contains no objects"),
        ("# nothing\n---\n", "manifest.yaml: contains no objects"),
        ("kind: TrainJob\nkind: TrainJob\n", "manifest.yaml:2:1: duplicate key 'kind'"),
        ("kind: TrainJob\nmetadata: {name: a}\n", ":1: apiVersion: FieldValueRequired: Required value"),
        (
            "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJobb\nmetadata: {name: a}\n",
            ":2: kind: FieldValueNotSupported: "
            'no kind "TrainJobb" in version "trainer.kubeflow.org/v1alpha1" (did you mean TrainJob?)',
        ),
        (
            "apiVersion: batch/v1beta1\nkind: Job\nmetadata: {name: a}\n",
            'no kind "Job" in version "batch/v1beta1" (did you mean batch/v1?)',
        ),
        ("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n", "nothing was validated"),
        ("apiVersion: [1]\nkind: {a: b}\nmetadata: 3\n", "kind: Required value"),
        ("kind: TrainJob\nmetadata: {name: a}\nspec: {x: 99999999999999999999999999}\n", "JSON does not support"),
    ],
)
def test_unreadable_manifests_are_exit_code_2(run: Any, manifest: Any, text: str, said: str) -> None:
    answer = run("validate", "-f", manifest(text))
    assert answer.exit_code == 2
    assert said in answer.stdout + answer.stderr


def test_objects_of_other_kinds_are_said_to_be_unchecked(run: Any, manifest: Any) -> None:
    answer = run(
        "validate", "-f", manifest(RUNTIME + TRAINJOB + "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n")
    )
    assert answer.exit_code == 0
    assert "kind: Unchecked: Trainwright does not know StatefulSet in apps/v1: only its metadata was checked" in answer.stderr


@pytest.mark.parametrize("quantity", ["1e99", "1e" + "9" * 400, "9" * 5000, "NaN", "inf", "0x10"])
def test_huge_and_odd_quantities_are_problems(run: Any, manifest: Any, quantity: str) -> None:
    answer = run("validate", "-f", manifest(RUNTIME + TRAINJOB + f'    resourcesPerNode: {{limits: {{cpu: "{quantity}"}}}}\n'))
    assert answer.exit_code in (0, 2)  # kubectl takes an exponent of any size for the largest quantity
    assert (answer.exit_code == 0) == ("no problems found" in answer.stdout)


def test_credentials_in_a_manifest_are_warnings_of_validate_and_migrate_and_refused_by_submit(run: Any, manifest: Any) -> None:
    file = manifest(RUNTIME + TRAINJOB + "    env: [{name: PGPASSWORD, value: hunter2}]\n    args: [--api-key, hunter2]\n")
    validated, migrated = run("validate", "-f", file), run("migrate", "-f", file)
    assert (validated.exit_code, migrated.exit_code) == (0, 0)
    assert f"warning: {file}:34: spec.trainer.env[0].PGPASSWORD: LiteralSecret: looks like a credential" in validated.stderr
    assert "warning: demo: spec.trainer.args[0]: looks like an option with a credential" in migrated.stderr
    refused = run("submit", "--dry-run", "client", "-f", file)
    assert refused.exit_code == 2
    assert "spec.trainer.args[0]: looks like an option" in refused.stderr
    assert "(--allow-literal-secrets submits it anyway)" in refused.stderr
    allowed = run("submit", "--dry-run", "client", "--allow-literal-secrets", "-f", file)
    assert allowed.exit_code == 0, allowed.stderr
    assert "hunter2" not in validated.output + migrated.stderr + refused.output + allowed.output


def test_materialize_tells_the_problems_of_all_documents(run: Any, manifest: Any) -> None:
    bad = RUNTIME.replace("torch: {}", "torch: {}\n    mpi: {}") + TRAINJOB + "    numNodes: -1\n"
    answer = run("materialize", "-f", manifest(bad))
    assert answer.exit_code == 2
    assert "spec.mlPolicy: " in answer.stderr
    assert "spec.trainer.numNodes: " in answer.stderr


def test_a_generated_name_is_no_problem(run: Any, write: Any, trainjob: Any) -> None:
    job = trainjob("")
    job["metadata"] = {"generateName": "tune-"}
    done = run("validate", "-f", write(job))
    assert (done.exit_code, done.stdout) == (0, "1 object, no problems found\n")
    job["spec"]["trainer"]["env"] = [{"name": "PET_NNODES", "value": "2"}]
    assert "must not have reserved envs" in run("validate", "-f", write(job)).stdout
