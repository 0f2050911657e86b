"""`trainwright finetune`: the whole chain on an embedded cluster, a second run of it, a failure and its resumption, steps in pods."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fast_training_cluster import Inputs, Runs, is_of, learned, running, script
from support.recorded_tracking import RecordedTracking
from typer.testing import CliRunner, Result

from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import OWNER_ANNOTATION
from trainwright.api.objects import annotations_of, name_of
from trainwright.checkpoints.promotion import Alias
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.cli import app
from trainwright.cli import finetune_run as command
from trainwright.jobs.diagnosis.exit_codes import ExitCode
from trainwright.steps import fine_tuning
from trainwright.steps.requests import FineTuning
from trainwright.submission import JobsClient
from trainwright.workspace import read_run

pytestmark = pytest.mark.timeout(120)
FAST = ("--training", "runtime=fast", "--evaluation", "runtime=fast-evaluation", "--gpus", "0")
Finetune = Callable[..., Result]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with running(tmp_path_factory.mktemp("finetune")) as found:
        yield found


@pytest.fixture
def finetune(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finetune:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINWRIGHT_HOME", raising=False)
    monkeypatch.setenv("KUBECONFIG", os.fspath(runs.plane._home.kubeconfig))

    def run(inputs: Inputs, *options: str) -> Result:
        paths = [uri.removeprefix("file://") for uri in (inputs.model, inputs.dataset)]
        result = CliRunner().invoke(app, ["finetune", *paths, *FAST, *options])
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        return result

    return run


@pytest.fixture
def asked(finetune: Finetune, monkeypatch: pytest.MonkeyPatch) -> list[FineTuning]:
    """What the chain is asked; none is run."""
    requests: list[FineTuning] = []

    def note(_cluster: Any, request: FineTuning, **_: Any) -> Any:
        requests.append(request)
        raise ValueError("not run")

    monkeypatch.setattr(command, "fine_tune", note)
    return requests


def restored(checkpoint: dict[str, Any], target: Path, uri: str = "") -> Path:
    """An export, in a folder; `uri` is where this process finds it."""
    restore_checkpoint(uri or checkpoint["uri"], target, digest=checkpoint["digest"])
    return target


def jobs_of(runs: Runs, run: str) -> list[str]:
    return sorted(name for job in runs.cluster.list(TRAINJOB).items if (name := name_of(job)).startswith(run))


@pytest.mark.slow
def test_a_run_ends_with_an_evaluated_export_and_is_not_done_twice(
    runs: Runs, finetune: Finetune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, tracked = runs.inputs("whole"), RecordedTracking()
    monkeypatch.setattr(fine_tuning, "tracking", tracked)
    first = finetune(inputs, "--run-id", "whole", "--promote", "better", "--tracking", "tensorboard", "-o", "json")
    assert first.exit_code == 0, first.output
    assert [target.partition(":")[0] for target in tracked.targets] == ["tensorboard"]
    assert (bool(tracked.uid), bool(tracked.events), tracked.ended) == (True, True, [None])
    result = json.loads(first.stdout)
    assert result["checkpoint"]["uri"] == f"file://{tmp_path}/exports/whole/checkpoint-5"
    assert is_of(restored(result["checkpoint"], tmp_path / "restored"), "whole")
    assert result["evaluation"]["after"]["loss"] < result["evaluation"]["before"]["loss"]
    assert result["promotion"]["promoted"]
    assert Path(result["loss_curve"]).is_file()
    jobs = jobs_of(runs, "whole")
    again = finetune(inputs, "--run-id", "whole", "--promote", "better")
    assert again.exit_code == 0, again.output
    assert "4.0000" in again.stdout
    assert result["checkpoint"]["digest"] in again.stdout
    assert jobs_of(runs, "whole") == jobs
    asked = ("--training", '{"env": {"LEARNING_RATE": "2"}}', "-o", "json")
    other = finetune(inputs, "--run-id", "whole", *asked)
    assert other.exit_code == 0, other.output
    checkpoint = json.loads(other.stdout)["checkpoint"]
    assert learned(restored(checkpoint, tmp_path / "other"))["start"] == 0, (
        "it has not resumed from the end of the first training"
    )
    assert checkpoint["uri"] != result["checkpoint"]["uri"]
    assert is_of(restored(result["checkpoint"], tmp_path / "kept"), "whole"), "what may be in use stays"


@pytest.mark.slow
def test_changed_data_and_a_run_of_another_owner_are_refused_before_the_run_is_changed(
    runs: Runs, finetune: Finetune, tmp_path: Path
) -> None:
    inputs = runs.inputs("changed")
    first = finetune(inputs, "--run-id", "changed")
    assert first.exit_code == 0, first.output
    folder = runs.folder / "home/node/claims/default/trainwright-finetune/runs/changed"
    names = ("run.json", "dataset-report.md", "dataset-report.html")
    before = [(folder / name).read_bytes() for name in names]
    rows = Path(inputs.dataset.removeprefix("file://"))
    file = rows if rows.is_file() else next(rows.glob("*.jsonl"))
    file.write_text(file.read_text("utf-8") + '{"prompt": "new", "completion": "row"}\n', "utf-8")
    refused = finetune(inputs, "--run-id", "changed")
    assert refused.exit_code != 0
    assert "dataset: the dataset has changed since this run began: it was sha256:" in refused.stderr
    assert (
        "\nstart a run with another run id; to resume this one, restore its dataset; to train it again, delete" in refused.stderr
    )
    assert [(folder / name).read_bytes() for name in names] == before
    assert "to resume, run" not in refused.stderr
    (job,) = (job for job in runs.cluster.list(TRAINJOB).items if annotations_of(job)[OWNER_ANNOTATION] == "cli/changed/train")
    owner = {"metadata": {"annotations": {OWNER_ANNOTATION: "airflow/nightly/changed/train"}}}
    runs.cluster.patch(TRAINJOB, name_of(job), owner, "default")
    foreign = finetune(inputs, "--run-id", "changed")
    assert "is in use by the TrainJob" in foreign.stderr
    assert "of airflow/nightly/changed/train; choose another run_id" in foreign.stderr
    assert [(folder / name).read_bytes() for name in names] == before


@pytest.mark.slow
def test_a_failed_training_is_resumed_by_the_same_command(runs: Runs, finetune: Finetune, tmp_path: Path) -> None:
    inputs, fail = runs.inputs("failing"), tmp_path / "fail"
    fail.touch()
    options = ("--run-id", "failing", "--training", json.dumps({"env": script(fails_while=str(fail))}))
    failed = finetune(inputs, *options)
    assert failed.exit_code == ExitCode.failed, failed.output
    assert "train: " in failed.stderr
    assert "to resume, run the command again with --run-id failing" in failed.stderr
    folder = runs.folder / "home/node/claims/default/trainwright-finetune/runs/failing"
    record = read_run(folder)
    assert record is not None
    assert record.failed.startswith("train: ")
    assert "\n" not in record.failed
    assert record.ended is None, "retention keeps it"
    fail.unlink()
    resumed = finetune(inputs, *options, "-o", "json")
    assert resumed.exit_code == 0, resumed.output
    record = read_run(folder)
    assert record is not None
    assert (record.failed, record.ended is None) == ("", False)
    checkpoint = restored(json.loads(resumed.stdout)["checkpoint"], tmp_path / "restored")
    assert learned(checkpoint)["start"] == 5


@pytest.mark.slow
def test_steps_run_in_pods_where_this_machine_has_no_workspace(runs: Runs, finetune: Finetune, tmp_path: Path) -> None:
    inputs, in_pods = runs.inputs("pods"), ("--training", "runs_on=cluster", "--run-id", "pods")
    lost = finetune(inputs, *in_pods)
    assert lost.exit_code == ExitCode.bad_input, lost.output
    assert "start: export_uri: " in lost.stderr
    assert "is a folder in the pod of the step, and would be lost with it" in lost.stderr
    assert not jobs_of(runs, "pods"), "it is refused before anything is trained"
    on_claim = ("--export", "file:///trainwright-workspace/exports", "--promote", "always")
    kept = finetune(inputs, *in_pods, *on_claim, "-o", "json")
    assert kept.exit_code == 0, kept.output
    claim = runs.folder / "home/node/claims/default/trainwright-finetune"
    exported = json.loads(kept.stdout)["checkpoint"]
    record = Alias(f"file://{claim}/exports").read()
    assert record is not None
    assert record.current.uri == exported["uri"], "a pod has promoted it"
    here = exported["uri"].replace("file:///trainwright-workspace", f"file://{claim}")
    assert is_of(restored(exported, tmp_path / "restored", here), "pods")


@pytest.mark.medium
def test_the_method_decides_on_trainer_settings_and_device(runs: Runs, finetune: Finetune, asked: list[FineTuning]) -> None:
    finetune(runs.inputs("methods"), "--method", "full", "--nodes", "2", "--epochs", "3", "--training", "limits.restarts=1")
    finetune(runs.inputs("methods"), "--method", "dpo", "--gpus", "4", "--training", '{"settings": {"beta": 0.2}}')
    full, dpo = asked
    assert (full.method, full.num_nodes, full.epochs) == ("full", 2, 3)
    assert full.training == {"runtime": "fast", "limits": {"restarts": 1}, "num_proc_per_node": 1, "settings": {"cpu": True}}
    assert full.resources_per_node == {}
    assert dpo.method == ""
    assert dpo.training == {"builtin": "dpo", "runtime": "fast", "settings": {"beta": 0.2}}
    assert dpo.resources_per_node == {"limits": {"nvidia.com/gpu": "4"}, "requests": {"nvidia.com/gpu": "4"}}


@pytest.mark.medium
def test_defaults_give_way_to_settings_of_the_training(
    runs: Runs, finetune: Finetune, asked: list[FineTuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "gpus_of_nodes", lambda _cluster: 1)
    monkeypatch.setitem(globals(), "FAST", ())  # which has --gpus
    own = '{"num_nodes": 2, "resources_per_node": {"nvidia.com/gpu": 2}}'
    finetune(runs.inputs("defaults"), "--training", own)
    finetune(runs.inputs("defaults"))
    chosen, default = asked
    assert (chosen.num_nodes, chosen.resources_per_node) == (0, {})
    assert (chosen.training["num_nodes"], chosen.training["resources_per_node"]) == (2, {"nvidia.com/gpu": 2})
    assert (default.num_nodes, default.resources_per_node["limits"]) == (1, {"nvidia.com/gpu": "1"})


@pytest.mark.medium
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "qlora"), "--method qlora: needs a GPU"),
        (("--data", "layuot=x"), "data.layuot: unknown setting; did you mean layout?"),
        (("--training", "settings.lr"), "--training: 'settings.lr' is neither KEY=VALUE nor a JSON object"),
        (("--promote", "sometimes"), "promote"),
        (("--training", '{"settings": {"end_tokn": "auto"}}'), "settings.end_tokn: unknown setting; did you mean end_token?"),
        (
            ("--training", "end_token=auto"),
            'training.end_token: a setting of the builtin trainer, which is given in settings: {"settings"',
        ),
        (
            ("--training", "num_proc_per_node=2", "--training", "num_proc_per_node=3"),
            "num_proc_per_node: given twice, as 2 and as 3",
        ),
        (("--nodes", "1", "--training", "num_nodes=2"), "training.num_nodes: given twice, with different values; give it once"),
        (("--registry", "hf:/me/x"), "start: registry: 'hf:/me/x' names no registry"),
        (("--tracking", "nope"), "start: tracking: 'nope' is unknown; expected mlflow, wandb, tensorboard"),
        (("--training", "restarts=2"), "training.restarts: unknown setting; it is training.limits.restarts"),
        (("--training", "limits.restarts=many"), "training.limits.restarts: expected a whole number"),
        (("--store-secret", "a", "--training", "secrets.store_secret=b"), "training.secrets.store_secret: given twice"),
        (("--method", "dpo", "--training", "builtin=sft"), "--method dpo: not with --training builtin=sft"),
        (("--training", '{"env": {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"}}'), "HF_TOKEN"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_created(
    runs: Runs, finetune: Finetune, options: tuple[str, ...], words: str
) -> None:
    refused = finetune(runs.inputs("wrong"), "--run-id", "wrong", *options)
    assert refused.exit_code == ExitCode.bad_input, refused.output
    assert words in refused.stderr
    assert not jobs_of(runs, "wrong")


@pytest.mark.medium
def test_an_export_target_that_cannot_be_written_is_refused_before_the_training(
    runs: Runs, finetune: Finetune, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    refused = finetune(runs.inputs("target"), "--run-id", "target", "--export", "s3://bucket/exports")
    assert refused.exit_code != 0
    assert "start: s3://bucket/exports: no credentials" in refused.stderr
    assert not jobs_of(runs, "target")


@pytest.mark.medium
def test_local_inputs_are_refused_for_another_cluster(
    runs: Runs, finetune: Finetune, asked: list[FineTuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobsClient, "is_embedded", lambda _client: False)
    here = finetune(runs.inputs("far"))
    assert here.exit_code == ExitCode.bad_input
    assert "pods of the cluster do not see this machine's files" in here.stderr
    hub = Inputs("hf://org/rows", "hf://org/model")
    promoted = finetune(hub, "--promote", "better")
    assert "set --export to an object store" in promoted.stderr
    assert not asked
    finetune(hub)
    assert asked[0].export_uri == "file:///trainwright-workspace/exports"
    assert asked[0].workspace == "pvc://trainwright-finetune?size=50Gi"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("the rows are pairs: use builtin=dpo or builtin=kto; or", "the rows are pairs: use --method dpo or --method kto; or"),
        ("none is left; report_mode=warn only reports it", "none is left; --data report_mode=warn only reports it"),
        ('name the prompt with columns={"prompt": ...}', 'name the prompt with --data columns={"prompt": ...}'),
        ("of a class with ReadWriteMany, or num_nodes=1, or", "of a class with ReadWriteMany, or --nodes 1, or"),
        (
            "Invalid value: 4 GiB; placement.memory_check=warn submits it",
            "Invalid value: 4 GiB; --training placement.memory_check=warn submits it",
        ),
        ("split='train[:5O%]' cannot be read", "split='train[:5O%]' cannot be read"),
    ],
)
def test_advice_names_the_options_of_the_command(message: str, shown: str) -> None:
    assert command._in_options(message) == shown


@pytest.mark.medium
def test_default_method_does_not_contradict_that_of_the_settings(runs: Runs, finetune: Finetune, asked: list[FineTuning]) -> None:
    finetune(runs.inputs("methods"), "--training", '{"settings": {"method": "full"}}')
    (request,) = asked
    assert (request.method, request.training["settings"]["method"]) == ("", "full")
    refused = finetune(runs.inputs("methods"), "--gpus", "0", "--training", '{"settings": {"method": "qlora"}}')
    assert "--method qlora: needs a GPU" in refused.stderr


@pytest.mark.medium
def test_a_source_that_does_not_exist_is_named(finetune: Finetune) -> None:
    missing = finetune(Inputs("file:///nowhere/rows.jsonl", "file:///nowhere/model"))
    assert missing.exit_code == ExitCode.bad_input
    assert "/nowhere/model: there is no such file or folder" in missing.stderr
    assert "or hf://org/name@REVISION" in finetune(Inputs("org/rows", "org/model@v2")).stderr
