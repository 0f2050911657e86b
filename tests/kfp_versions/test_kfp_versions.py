"""Components and pipelines with every minor of kfp that they support, each in an environment of its own.

Compiled they are the same, whatever the version. Single components are run by `kfp.local`, whole pipelines by
`trainwright pipeline run --local`.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from kfp_environment import MINORS, VERSIONS, Compiled, KfpEnvironment, read_compiled
from packaging.requirements import Requirement
from support.client_environments import ROOT
from support.fast_training_cluster import EMPTY_WEIGHTS, Runs
from support.on_first_use import OnFirstUse

from trainwright.api.conditions import is_true
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.checkpoints.promotion import Alias
from trainwright.storage.uri import StorageUri
from trainwright.workspace.receipt import Receipt

build = OnFirstUse("trainwright.pipelines.build")

pytestmark = pytest.mark.timeout(300)
slow, wide = pytest.mark.slow, pytest.mark.wide(part="kfp")


@pytest.mark.parametrize("package", ["kfp", "kfp-kubernetes"])
def test_the_extra_takes_tested_minors_only(package: str) -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["kfp"]
    (specifier,) = (each.specifier for each in map(Requirement, extra) if each.name == package)
    minors = {f"2.{minor}" for minor in range(30) if f"2.{minor}.0" in specifier}
    assert {"2.17"} <= minors <= MINORS.keys()
    assert "3.0.0" not in specifier


@wide
@slow
def test_an_environment_has_its_minor_and_imports_the_wheel(kfp: KfpEnvironment) -> None:
    kfp_version, extension, client = kfp.run("-c", VERSIONS).split()
    assert kfp_version.startswith(f"{kfp.minor}.")
    assert extension.startswith(f"{kfp.minor}.")
    assert client.startswith("30."), "the oldest Kubernetes client that is supported"
    where = kfp.run("-c", "import trainwright.components; print(trainwright.components.__file__)").strip()
    assert Path(where).is_relative_to(kfp.installed)


@wide
@slow
def test_every_component_and_pipeline_compiles_to_the_same_as_with_the_kfp_of_these_tests(
    compiled: Compiled, tmp_path: Path
) -> None:
    build.build(tmp_path)
    assert {"train.yaml", "finetune_pipeline.yaml", "retrain_pipeline.yaml"} <= compiled.keys()
    assert compiled == read_compiled(tmp_path)


@wide
@slow
def test_the_command_line_compiles_a_pipeline(kfp: KfpEnvironment, compiled: Compiled, tmp_path: Path) -> None:
    kfp.run("-m", "trainwright.cli", "pipeline", "compile", "finetune", "-O", str(tmp_path / "finetune_pipeline.yaml"))
    assert read_compiled(tmp_path)["finetune_pipeline.yaml"] == compiled["finetune_pipeline.yaml"]


@wide
@slow
def test_a_step_without_a_cluster_runs(kfp: KfpEnvironment, tmp_path: Path) -> None:
    workspace = str(tmp_path / "workspace")
    if kfp.minor == "2.16":  # its local runner takes no component with input artifacts, though they are optional
        source = tmp_path / "model"
        source.mkdir()
        for name, content in (("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", EMPTY_WEIGHTS)):
            (source / name).write_bytes(content)
        told = {"model_uri": str(StorageUri.from_path(source)), "workspace_path": workspace}
        outputs = kfp.run_step("initialize_model", told, tmp_path).outputs
        assert Receipt.model_validate_json(Path(outputs["model"]).read_bytes()).digest == outputs["digest"]
        return
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{number}?", "completion": "!"}) + "\n" for number in range(20)))
    told = {"dataset_uri": str(StorageUri.from_path(rows)), "workspace_path": workspace}
    outputs = kfp.run_step("initialize_dataset", told, tmp_path).outputs
    assert outputs["test_rows"] > 0
    assert outputs["train_rows"] + outputs["test_rows"] == 20
    receipt = Receipt.model_validate_json(Path(outputs["dataset"]).read_bytes())
    assert receipt.digest == outputs["digest"]


@wide
@slow
def test_a_step_that_trains_in_a_cluster_runs(kfp: KfpEnvironment, runs: Runs, tmp_path: Path) -> None:
    told = {"run_id": f"step-{kfp.minor}", "runtime": "torch-distributed", "command": ["echo", "a line of the training"]}
    kubeconfig = runs.folder / "home/kubeconfig"
    if kfp.minor == "2.16":  # its local runner takes no component with input artifacts, though they are optional
        submitted = kfp.run_step("submit_train_job", told, tmp_path, kubeconfig=kubeconfig)
        handle = {"trainjob": submitted.outputs["Output"]}
        done = kfp.run_step("wait_train_job", handle, tmp_path, kubeconfig=kubeconfig)
    else:
        done = kfp.run_step("train", told, tmp_path, kubeconfig=kubeconfig)
    assert is_true(runs.cluster.get(TRAINJOB, done.outputs["trainjob"], "default"), "Complete")
    assert "a line of the training" in done.printed


@wide
@slow
def test_a_whole_pipeline_runs(kfp: KfpEnvironment, runs: Runs, tmp_path: Path) -> None:
    """Conditions, an exit handler, artifacts and outputs from step to step."""
    claim = f"claim-{kfp.minor.replace('.', '-')}"
    export_uri = str(StorageUri.from_path(tmp_path / "exports"))
    told = {
        **runs.inputs(claim).uris,
        "export_uri": export_uri,
        "workspace": f"pvc://{claim}",
        "runtime": "fast",
        "training": {"workspace_path": str(runs.claim(claim))},
        "evaluation": {"runtime": "fast-evaluation"},
    }
    before = {name_of(job) for job in runs.cluster.list(TRAINJOB, "default").items}
    (tmp_path / "values.json").write_text(json.dumps(told), "utf-8")
    command = ("-m", "trainwright.cli", "pipeline", "run", "retrain", "--local", "--params", "values.json")
    kfp.run(*command, variables={"KUBECONFIG": str(runs.folder / "home/kubeconfig")}, folder=tmp_path)
    jobs = [job for job in runs.cluster.list(TRAINJOB, "default").items if name_of(job) not in before]
    assert [is_true(job, "Complete") for job in jobs] == [True, True], "a training and an evaluation"
    champion = Alias(export_uri).read()
    assert champion is not None
    assert champion.current.uri.startswith(export_uri)
