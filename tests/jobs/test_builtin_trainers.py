"""Builtin trainers: which one is chosen, what it makes of settings, and when it is refused."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from factories import trainjob
from pydantic import ValidationError

from trainwright.api.errors import Invalid
from trainwright.api.objects import name_of
from trainwright.jobs import Identity, TrainRequest
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.submit.compatibility import IncompatibleRuntime, InvalidSettings, check_compatible
from trainwright.jobs.submit.resolve import resolve
from trainwright.jobs.trainers.builtin_trainers import (
    GROUP,
    NoSuchTrainer,
    Program,
    builtin_trainers,
    named_trainer,
    runtime_of,
    trainer_for,
)
from trainwright.jobs.trainers.sft import SftSettings
from trainwright.jobs.trainers.torchtune import TorchTuneSettings
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime, bundled_runtimes

STEP = Identity("kfp", "run", "train")
OTHERS = [name_of(one) for one in bundled_runtimes() if name_of(one) != "trl-sft"]
GPU = {"nvidia.com/gpu": "1"}


def definition(name: str) -> dict[str, Any]:
    found = bundled_runtime(name)
    assert found is not None
    return found


def trainer_of(request: TrainRequest, runtime: str = "") -> dict[str, Any]:
    """spec.trainer of the request's job."""
    found = definition(runtime or runtime_of(request))
    made: dict[str, Any] = trainjob_manifest(resolve(request, found), STEP, "default")["spec"]["trainer"]
    return made


def refusal(request: TrainRequest, runtime: str = "") -> str:
    with pytest.raises(Invalid) as raised:
        resolve(request, definition(runtime or runtime_of(request)))
    return "; ".join(map(str, raised.value.problems))


def test_with_nothing_said_it_is_sft() -> None:
    request = TrainRequest()
    assert runtime_of(request) == "trl-sft"
    assert trainer_of(request)["args"] == SftSettings().arguments()
    assert "command" not in trainer_of(request)


def test_settings_become_arguments() -> None:
    request = TrainRequest(settings={"method": "full", "steps": 3, "cpu": True, "extra": ["--packing", "True"], "epochs": 2.0})
    args = trainer_of(request)["args"]
    assert args[:2] == ["--num_train_epochs", "2.0"]
    assert args[args.index("--max_steps") + 1] == "3"
    assert args[-2:] == ["--packing", "True"]
    assert "--use_cpu" in args
    assert "--use_peft" not in args


@pytest.mark.parametrize(
    "said",
    [
        {"func": "def f(): ..."},
        {"code": "/x", "command": ["a.py"]},
        {"command": ["a"]},
        {"args": ["--a"]},
    ],
)
def test_where_something_else_says_what_runs_there_is_none(said: dict[str, Any]) -> None:
    request = TrainRequest(runtime="trl-sft", **said)
    assert trainer_for(request, definition("trl-sft")) is None
    assert "settings: only builtin trainers use settings, but another field specifies the program" in refusal(
        request.model_copy(update={"settings": {"epochs": 1}})
    )


def test_another_image_of_the_program_is_still_its_program() -> None:
    trainer = trainer_for(TrainRequest(runtime="trl-sft", image="example.com/a:1"), definition("trl-sft"))
    assert trainer is not None
    assert trainer.name == "sft"


def test_a_manifest_has_none() -> None:
    request = TrainRequest(manifest=trainjob(runtime="trl-sft"))
    assert trainer_for(request, definition("trl-sft")) is None


@pytest.mark.parametrize("runtime", OTHERS)
def test_another_runtime_never_gets_arguments_of_sft(runtime: str) -> None:
    request = TrainRequest(runtime=runtime)
    assert trainer_for(request, definition(runtime)) is None
    assert trainjob_manifest(ResolvedRequest(request, definition(runtime)), STEP, "default")["spec"]["trainer"] == {}
    if "torchtune" not in runtime:
        words = refusal(TrainRequest(runtime=runtime, settings={"epochs": 1}))
        assert f"settings: no builtin trainer supports the runtime {runtime!r}" in words
    assert "builtin: 'sft' is for runtimes with the label trainer.kubeflow.org/framework=trl" in refusal(
        TrainRequest(runtime=runtime, builtin="sft")
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epoch": 1}, r"settings.epoch: unknown setting; did you mean epochs\? \(extra takes other arguments of the program\)"),
        ({"max_steps": 1}, r"settings.max_steps: unknown setting; did you mean steps\?"),
        ({"num_train_epochs": 1}, r"settings.num_train_epochs: unknown setting; did you mean epochs\?"),
        ({"per_device_train_batch_size": 1, "seed": "x"}, r"settings.seed: .*, settings.per_device.*did you mean batch_size\?"),
        ({"epochs": 0}, "settings.epochs: expected more than 0"),
        ({"method": "qlora"}, "settings.method: expected lora or full"),
        ({"steps": -1, "seed": "x"}, r"settings.steps: .*, settings.seed: "),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        resolve(TrainRequest(settings=settings), definition("trl-sft"))


def test_unknown_setting_of_a_part_has_a_suggestion() -> None:
    request = TrainRequest(builtin="torchtune", runtime="torchtune-llama3.2-1b", settings={"peft_config": {"lora_rnk": 8}})
    with pytest.raises(InvalidSettings, match=r"settings.peft_config.lora_rnk: unknown setting; did you mean lora_rank\?$"):
        resolve(request, definition("torchtune-llama3.2-1b"))


def test_wrong_settings_and_wrong_runtime_are_one_error() -> None:
    request = TrainRequest(settings={"epoch": 1}, resume="s3://bucket/run", builtin="sft", runtime="torch-distributed")
    with pytest.raises(IncompatibleRuntime, match="builtin: 'sft' is for runtimes with the label"):
        resolve(request, definition("torch-distributed"))
    request = TrainRequest(settings={"epoch": 1}, resources_per_node={"limits": {"cpu": "x"}})
    with pytest.raises(InvalidSettings, match=r"settings\.epoch.*resources_per_node\.limits\.cpu"):
        resolve(request, definition("trl-sft"))


@pytest.mark.parametrize(
    ("builtin", "words"),
    [
        ("sfft", "builtin: 'sfft' is not installed; did you mean sft?"),
        ("torch-tune", "builtin: 'torch-tune' is not installed; did you mean torchtune?"),
        ("ppo", "builtin: 'ppo' is not installed; known here: sft, torchtune"),
    ],
)
def test_an_unknown_one_is_named_with_the_nearest(builtin: str, words: str) -> None:
    with pytest.raises(NoSuchTrainer) as raised:
        runtime_of(TrainRequest(builtin=builtin))
    assert str(raised.value) == words
    with pytest.raises(NoSuchTrainer):
        resolve(TrainRequest(builtin=builtin, runtime="trl-sft"), definition("trl-sft"))


def test_torchtune_needs_its_runtime_named() -> None:
    with pytest.raises(ValueError, match="runtime: the builtin trainer 'torchtune' has one runtime for each model; specify one"):
        runtime_of(TrainRequest(builtin="torchtune"))


@pytest.mark.parametrize("field", ["command", "args"])
def test_a_builtin_trainer_beside_a_command_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field}: cannot be combined with the builtin trainer 'sft'"):
        TrainRequest(builtin="sft", **{field: ["x"]})


class Third:
    name, framework, runtime, is_default = "third", "xgboost", "xgboost-distributed", False

    def program(self, settings: dict[str, Any], dataset_uri: str) -> Program:
        if "depth" not in settings:
            raise ValueError("depth: missing")
        return Program(["third", str(settings["depth"])], [dataset_uri], requires_gpu=False)


class Lacking:
    name = "lacking"


def installed(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry = EntryPoint("third", f"{__name__}:{value}", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == GROUP else [])
    monkeypatch.setattr(EntryPoint, "load", lambda _entry: globals()[value])
    monkeypatch.setattr("trainwright.jobs.trainers.builtin_trainers.builtin_trainers", builtin_trainers.__wrapped__)


def test_another_package_may_bring_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "Third")
    request = TrainRequest(builtin="third", settings={"depth": 3.0})
    assert runtime_of(request) == "xgboost-distributed"
    assert trainer_of(request) == {"command": ["third", "3"], "args": [""]}
    assert resolve(request, definition("xgboost-distributed")).warnings == ()
    assert "settings: depth: missing" in refusal(TrainRequest(builtin="third"))
    of_runtime = TrainRequest(runtime="xgboost-distributed", settings={"depth": 1})
    assert trainer_of(of_runtime)["command"] == ["third", "1"]
    with pytest.raises(NoSuchTrainer, match="known here: third"):
        named_trainer("sft")


def test_one_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "Lacking")
    with pytest.raises(TypeError, match=r"entry point third = .*:Lacking of .* is not a builtin trainer: it has no framework"):
        named_trainer("lacking")


LORA = ["q_proj", "k_proj", "v_proj", "output_proj"]
PREPROCESS = {
    "source": "PARQUET",
    "split": "train[:95%]",
    "train_on_input": False,
    "new_system_prompt": "You are helpful.",
    "column_map": {"input": "question", "output": "answer"},
}


@pytest.mark.parametrize(
    ("settings", "uri", "expected"),
    [
        ({}, "", []),
        ({}, "hf://tatsu-lab/alpaca", ["dataset.data_dir=/workspace/dataset/."]),
        ({}, "hf://tatsu-lab/alpaca/data", ["dataset.data_dir=/workspace/dataset/data"]),
        ({}, "hf://tatsu-lab/alpaca/data/", ["dataset.data_dir=/workspace/dataset/data"]),
        ({}, "hf://tatsu-lab/alpaca/data/train.json", ["dataset.data_files=/workspace/dataset/data/train.json"]),
        ({}, "s3://b/data", []),
        (
            {"dtype": "BF16", "batch_size": 4, "epochs": 2, "loss": "CEWithChunkedOutputLoss"},
            "hf://tatsu-lab/alpaca",
            [
                "dtype=bf16",
                "batch_size=4",
                "epochs=2",
                "loss=torchtune.modules.loss.CEWithChunkedOutputLoss",
                "dataset.data_dir=/workspace/dataset/.",
            ],
        ),
        ({"dtype": "fp32"}, "", ["dtype=fp32"]),
        ({"peft_config": {}}, "", ["model.lora_attn_modules=[q_proj,v_proj,output_proj]"]),
        (
            {
                "epochs": 1,
                "peft_config": {
                    "apply_lora_to_mlp": True,
                    "apply_lora_to_output": False,
                    "lora_attn_modules": LORA,
                    "lora_rank": 8,
                    "lora_alpha": 16,
                    "lora_dropout": 0.1,
                    "quantize_base": True,
                    "use_dora": False,
                },
            },
            "hf://tatsu-lab/alpaca",
            [
                "epochs=1",
                "dataset.data_dir=/workspace/dataset/.",
                "model.apply_lora_to_mlp=True",
                "model.apply_lora_to_output=False",
                "model.lora_rank=8",
                "model.lora_alpha=16",
                "model.lora_dropout=0.1",
                "model.quantize_base=True",
                "model.use_dora=False",
                "model.lora_attn_modules=[q_proj,k_proj,v_proj,output_proj]",
            ],
        ),
        (
            {"peft_config": {"lora_attn_modules": [], "lora_dropout": 0.0, "use_dora": True}},
            "",
            ["model.lora_dropout=0.0", "model.use_dora=True"],
        ),
        ({"dataset_preprocess_config": {}}, "", ["dataset=torchtune.datasets.instruct_dataset"]),
        (
            {"dataset_preprocess_config": PREPROCESS},
            "hf://a/b/c.parquet",
            [
                "dataset.data_files=/workspace/dataset/c.parquet",
                "dataset=torchtune.datasets.instruct_dataset",
                "dataset.source=parquet",
                "dataset.split=train[:95%]",
                "dataset.train_on_input=False",
                "dataset.new_system_prompt=You are helpful.",
                "dataset.column_map={'input': 'question', 'output': 'answer'}",
            ],
        ),
    ],
)
def test_torchtune_arguments_are_the_kubeflow_sdks(settings: dict[str, Any], uri: str, expected: list[str]) -> None:
    """Recorded from get_args_using_torchtune_config of kubeflow 0.5.0."""
    assert TorchTuneSettings.model_validate(settings).arguments(uri) == expected


def test_a_torchtune_job_runs_trainers_recipe() -> None:
    runtime = "torchtune-llama3.2-1b"
    request = TrainRequest(
        runtime=runtime,
        dataset_uri="hf://tatsu-lab/alpaca/data",
        settings={"epochs": 1, "peft_config": {"lora_rank": 8.0}},
        resources_per_node=GPU,
    )
    assert resolve(request, definition(runtime)).warnings == ()
    trainjob = trainjob_manifest(resolve(request, definition(runtime)), STEP, "default")
    assert trainjob["spec"]["trainer"]["command"] == ["tune", "run"]
    jobset = materialize(trainjob, definition(runtime))[-1]
    node = next(job for job in jobset["spec"]["replicatedJobs"] if job["name"] == "node")
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == [
        "tune",
        "run",
        "lora_finetune_single_device",
        "--config",
        "llama3_2/1B_lora_single_device",
        "output_dir=/workspace/output",
        "tokenizer.path=/workspace/model/original/tokenizer.model",
        "checkpointer.checkpoint_dir=/workspace/model",
    ]
    assert container["args"] == [
        "epochs=1",
        "dataset.data_dir=/workspace/dataset/data",
        "model.lora_rank=8",
        "model.lora_attn_modules=[q_proj,v_proj,output_proj]",
    ]


def test_a_torchtune_runtime_without_settings_runs_its_own_command() -> None:
    llama = "torchtune-llama3.2-1b"
    trainjob = trainjob_manifest(resolve(TrainRequest(runtime=llama), definition(llama)), STEP, "default")
    node = materialize(trainjob, definition("torchtune-llama3.2-1b"))[-1]["spec"]["replicatedJobs"][-1]
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][3] == "full_finetune_distributed"


@pytest.mark.parametrize(
    "brought", [{"command": ["a"]}, {"func": "def f(): ..."}, {"code": "/x", "command": ["a"]}, {"image": "a:1"}]
)
def test_a_runtime_without_a_command_needs_one(brought: dict[str, Any]) -> None:
    words = "command: the runtime 'torch-distributed' has no command; set command, func, code, or an image"
    assert words in refusal(TrainRequest(runtime="torch-distributed"))
    assert words in refusal(TrainRequest(runtime="torch-distributed", args=["--x"]))
    check_compatible(ResolvedRequest(TrainRequest(runtime="torch-distributed", **brought), definition("torch-distributed")))


@pytest.mark.parametrize(
    ("request_", "warned"),
    [
        (TrainRequest(), True),
        (TrainRequest(resources_per_node=GPU), False),
        (TrainRequest(resources_per_node={"limits": {"amd.com/gpu": 1}}), False),
        (TrainRequest(resources_per_node={"cpu": 4}), True),
        (TrainRequest(settings={"cpu": True}), False),
        (TrainRequest(command=["a"], runtime="trl-sft"), False),
        (TrainRequest(runtime="torchtune-llama3.2-1b", settings={"epochs": 1}), False),
    ],
)
def test_a_program_that_wants_a_gpu_is_warned_of(request_: TrainRequest, warned: bool) -> None:
    words = (
        "neither the runtime nor resources_per_node requests a GPU, but the training program requires one: set "
        'resources_per_node={"nvidia.com/gpu": 1}, or settings={"cpu": true} to train on the CPU'
    )
    assert (words in resolve(request_, definition(runtime_of(request_))).warnings) is warned
