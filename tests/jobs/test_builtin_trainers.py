"""Builtin trainers: which one is chosen, what it makes of settings, and when it is refused."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from factories import train_request

from trainwright.api.errors import Invalid
from trainwright.api.objects import Obj, name_of
from trainwright.jobs import Identity, TrainRequest
from trainwright.jobs.manifest.resolved_request import ResolvedRequest, trainer_container
from trainwright.jobs.manifest.training_program import own_program
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.submit.resolve import InvalidRequest, resolve
from trainwright.jobs.trainers.builtin_trainers import (
    GROUP,
    BuiltinTrainer,
    NoSuchTrainer,
    OwnProgram,
    Program,
    WrongField,
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
OTHERS = [name_of(one) for one in bundled_runtimes() if not name_of(one).startswith("trl-")]
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


def chosen(request: TrainRequest, runtime: Obj) -> BuiltinTrainer | None:
    return trainer_for(request, runtime, own_program(request, runtime))


def refusal(request: TrainRequest, runtime: str = "") -> str:
    with pytest.raises(Invalid) as raised:
        resolve(request, definition(runtime or runtime_of(request)))
    return "; ".join(map(str, raised.value.problems))


@pytest.mark.parametrize("runtime", ["trl-sft", "trl-dpo", "trl-kto"])
@pytest.mark.parametrize("builtin", ["sft", "dpo", "kto"])
def test_trainer_runs_its_own_script_in_every_runtime_of_trl(builtin: str, runtime: str) -> None:
    made = trainer_of(train_request(builtin=builtin, runtime=runtime))
    job = trainjob_manifest(resolve(train_request(builtin=builtin, runtime=runtime), definition(runtime)), STEP, "default")
    node = materialize(job, definition(runtime))[-1]["spec"]["replicatedJobs"][-1]
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    assert [word for word in container["command"] if word.startswith("trl.scripts.")] == [f"trl.scripts.{builtin}"]
    assert ("command" in made) is (runtime != f"trl-{builtin}")
    assert "--lora_r" in container["args"]
    assert ("--beta" in container["args"]) is (builtin != "sft")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "1024"}),
        ({"settings": {"max_length": 9}}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "9"}),
        ({"settings": {"extra": ["--packing"]}}, {"MODEL_URI": "hf://o/m"}),
        ({"settings": {"extra": ["--chat_template_path", "t"]}}, {"MODEL_URI": "hf://o/m", "REPORT_MODE": "off"}),
        *(
            ({"settings": {"extra": words}}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "1024", "END_TOKEN": "<|im_end|>"})
            for words in (["--eos_token", "<|im_end|>"], ["--eos-token=<|im_end|>"])
        ),
        ({"settings": {"end_token": "auto"}}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "1024", "END_TOKEN": "auto"}),
        ({"settings": {"loss_on": "answers"}}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "1024", "LOSS_ON": "answers"}),
        ({"builtin": "dpo", "runtime": "trl-sft"}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "1024"}),
        ({"model_uri": "pvc://claim/m"}, {}),
        ({"model_uri": ""}, {}),
        ({"args": ["--x"]}, {}),
        ({"dataset_env": {"DATASET_MAX_LENGTH": "7"}}, {"MODEL_URI": "hf://o/m", "MAX_LENGTH": "7"}),
    ],
)
def test_initializer_of_the_dataset_learns_the_model_and_how_rows_are_cut(
    setting: dict[str, Any], expected: dict[str, str]
) -> None:
    request = train_request(**{"runtime": "trl-sft", "dataset_uri": "hf://o/rows", "model_uri": "hf://o/m", **setting})
    spec = trainjob_manifest(resolve(request, definition(request.runtime)), STEP, "default")["spec"]
    found = {each["name"]: each.get("value") for each in spec["initializer"]["dataset"].get("env", [])}
    names = ("MODEL_URI", "MAX_LENGTH", "END_TOKEN", "LOSS_ON", "REPORT_MODE")
    assert {name: found[f"DATASET_{name}"] for name in names if f"DATASET_{name}" in found} == expected


def variables_of_start(request: TrainRequest, runtime: Obj) -> dict[str, str]:
    """Variables of the init container that finds the checkpoint to resume from."""
    spec = trainjob_manifest(resolve(request, runtime), STEP, "default")["spec"]
    containers = [
        container
        for patch in spec.get("runtimePatches", [])
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        for container in job["template"]["spec"]["template"]["spec"].get("initContainers", [])
    ]
    return {each["name"]: each.get("value", "") for container in containers for each in container["env"]}


@pytest.mark.parametrize(
    ("settings", "words", "variables"),
    [
        ({}, [], {}),
        ({"end_token": "<|im_end|>"}, ["--eos_token=<|im_end|>"], {}),
        ({"extra": ["--assistant_only", "True"]}, ["--assistant_only", "True"], {"TRAINWRIGHT_LOSS_ON": "answers"}),
        ({"end_token": "auto"}, [], {"TRAINWRIGHT_END_TOKEN": "auto"}),
        ({"loss_on": "answers"}, ["--assistant_only_loss", "True"], {"TRAINWRIGHT_LOSS_ON": "answers"}),
        ({"loss_on": "all"}, [], {"TRAINWRIGHT_LOSS_ON": "all"}),
        ({"extra": ["--assistant_only_loss"]}, ["--assistant_only_loss"], {"TRAINWRIGHT_LOSS_ON": "answers"}),
        ({"extra": ["--assistant-only-loss=False"]}, ["--assistant-only-loss=False"], {"TRAINWRIGHT_LOSS_ON": "all"}),
        ({"dtype": "bfloat16"}, ["--dtype", "bfloat16"], {}),
        ({"dtype": "bfloat16", "method": "qlora"}, [], {}),
    ],
)
def test_settings_of_what_is_learned_reach_the_script_and_what_prepares_its_start(
    settings: dict[str, Any], words: list[str], variables: dict[str, str]
) -> None:
    request = train_request(settings=settings)
    args = trainer_of(request)["args"]
    plain = SftSettings(method=settings.get("method", "lora")).arguments()
    assert [word for word in args if word not in plain] == [word for word in words if word not in plain]
    found = variables_of_start(request, definition("trl-sft"))
    assert {
        name: value for name, value in found.items() if name not in ("TRAINWRIGHT_TRAINER", "TRAINWRIGHT_TRAINING")
    } == variables


def test_trainer_never_guesses_what_another_command_runs() -> None:
    runtime = definition("trl-sft")
    container = trainer_container(runtime)
    assert container is not None
    container["command"] = ["torchrun", "train.py"]
    assert chosen(train_request(runtime="trl-sft"), runtime) is None
    assert chosen(train_request(runtime="trl-sft", settings={"epochs": 1}), runtime) is None
    with pytest.raises(Invalid, match=r"builtin: the runtime's command runs no script of TRL .* use the runtime trl-dpo"):
        resolve(train_request(builtin="dpo", runtime="trl-sft"), runtime)


@pytest.mark.parametrize(
    ("builtin", "settings", "words"),
    [
        ("kto", {"batch_size": 1}, "settings.batch_size: expected at least 2"),
        ("dpo", {"loss_type": "ipo"}, "settings.loss_type: unknown setting; did you mean loss?"),
        ("sft", {"beta": 0.1}, "settings.beta: unknown setting"),
        ("dpo", {"desirable_weight": 1}, "settings.desirable_weight: unknown setting"),
        ("dpo", {"beta": 0}, "settings.beta: expected more than 0"),
        ("dpo", {"loss_on": "answers"}, "settings.loss_on: a setting of sft; dpo and kto learn from the answers"),
        ("kto", {"end_token": "auto"}, "settings.end_token: a setting of sft; train with sft and this token first"),
        ("sft", {"end_token": "$(HOME)"}, "settings.end_token: expected a token of the vocabulary in printable letters"),
        ("sft", {"end_token": "a\nb"}, "settings.end_token: expected a token of the vocabulary in printable letters"),
        ("sft", {"extra": ["--eos_token", "auto"]}, "settings.extra: --eos_token auto would be the token of that name"),
        ("sft", {"eos_token": "x"}, "settings.eos_token: unknown setting; did you mean end_token?"),
    ],
)
def test_settings_of_preference_trainers_are_checked(builtin: str, settings: dict[str, Any], words: str) -> None:
    assert words in refusal(train_request(builtin=builtin, settings=settings))


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
    request = train_request(runtime="trl-sft", **said)
    assert chosen(request, definition("trl-sft")) is None
    assert "settings: only builtin trainers use settings, but another field specifies the program" in refusal(
        request.having(settings={"epochs": 1})
    )


@pytest.mark.parametrize("runtime", OTHERS)
def test_another_runtime_never_gets_arguments_of_sft(runtime: str) -> None:
    request = train_request(runtime=runtime)
    assert chosen(request, definition(runtime)) is None
    assert trainjob_manifest(ResolvedRequest(request, definition(runtime)), STEP, "default")["spec"]["trainer"] == {}
    if "torchtune" not in runtime:
        words = refusal(train_request(runtime=runtime, settings={"epochs": 1}))
        assert f"settings: the runtime {runtime!r} has no builtin trainer by default" in words
    assert "builtin: 'sft' is for runtimes with the label trainer.kubeflow.org/framework=trl" in refusal(
        train_request(runtime=runtime, builtin="sft")
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epoch": 1}, r"settings.epoch: unknown setting; did you mean epochs\? \(extra takes other arguments of the program\)"),
        ({"max_steps": 1}, r"settings.max_steps: unknown setting; did you mean steps\?"),
        ({"num_train_epochs": 1}, r"settings.num_train_epochs: unknown setting; did you mean epochs\?"),
        ({"per_device_train_batch_size": 1, "seed": "x"}, r"settings.seed: .*, settings.per_device.*did you mean batch_size\?"),
        ({"epochs": 0}, "settings.epochs: expected more than 0"),
        ({"method": "qlor"}, "settings.method: expected lora, qlora or full"),
        ({"method": "qlora", "cpu": True}, "settings.cpu: the method qlora needs a GPU; use lora to train on the CPU"),
        ({"steps": -1, "seed": "x"}, r"settings.steps: .*, settings.seed: "),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        resolve(train_request(settings=settings), definition("trl-sft"))


class Third:
    name, framework, runtime = "third", "xgboost", "xgboost-distributed"
    rows = frozenset[str]()

    def is_default_for(self, own: OwnProgram) -> bool:
        return False

    def program(self, settings: dict[str, Any], dataset_uri: str, own: OwnProgram) -> Program:
        if "depth" not in settings:
            raise ValueError("depth: missing")
        return Program(["third", str(settings["depth"])], [dataset_uri], requires_gpu=False)


def installed(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry = EntryPoint("third", f"{__name__}:{value}", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == GROUP else [])
    monkeypatch.setattr(EntryPoint, "load", lambda _entry: globals()[value])
    monkeypatch.setattr("trainwright.jobs.trainers.builtin_trainers.builtin_trainers", builtin_trainers.__wrapped__)


def test_another_package_may_bring_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "Third")
    request = train_request(builtin="third", settings={"depth": 3.0})
    assert runtime_of(request) == "xgboost-distributed"
    assert trainer_of(request) == {"command": ["third", "3"], "args": [""]}
    assert resolve(request, definition("xgboost-distributed")).warnings == ()
    assert "settings: depth: missing" in refusal(train_request(builtin="third"))
    of_runtime = train_request(runtime="xgboost-distributed", settings={"depth": 1})
    assert trainer_of(of_runtime)["command"] == ["third", "1"]
    with pytest.raises(NoSuchTrainer, match="known here: third"):
        named_trainer("sft")


LORA = ["q_proj", "k_proj", "v_proj", "output_proj"]
PREPROCESS = {
    "source": "PARQUET",
    "split": "train[:95%]",
    "train_on_input": False,
    "new_system_prompt": "You are helpful.",
    "column_map": {"input": "question", "output": "answer"},
}


FETCHED = OwnProgram(("tune", "run"), fetches_dataset=True)
PREPARED = OwnProgram(("tune", "run"), prepares_rows=True, fetches_dataset=True)
OF_RUNTIME = OwnProgram(
    (
        "tune",
        "run",
        "dataset=torchtune.datasets.chat_dataset",
        "dataset.source=parquet",
        "dataset.data_dir=/workspace/dataset/data",
    ),
    fetches_dataset=True,
)
INSTRUCT = ["dataset=torchtune.datasets.instruct_dataset", "dataset.split=train"]
SOURCE = {"dataset_preprocess_config": {"source": "csv"}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        (
            {"dtype": "BF16", "batch_size": 4, "epochs": 2, "loss": "CEWithChunkedOutputLoss"},
            ["dtype=bf16", "batch_size=4", "epochs=2", "loss=torchtune.modules.loss.CEWithChunkedOutputLoss"],
        ),
        ({"dtype": "fp32"}, ["dtype=fp32"]),
        ({"peft_config": {}}, ["model.lora_attn_modules=[q_proj,v_proj,output_proj]"]),
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
            [
                "epochs=1",
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
            ["model.lora_dropout=0.0", "model.use_dora=True"],
        ),
        (
            {"dataset_preprocess_config": PREPROCESS},
            [
                "dataset=torchtune.datasets.instruct_dataset",
                "dataset.split=train[:95%]",
                "dataset.source=parquet",
                "dataset.train_on_input=False",
                "dataset.new_system_prompt=You are helpful.",
                "dataset.column_map={'input': 'question', 'output': 'answer'}",
            ],
        ),
    ],
)
def test_torchtune_arguments_are_the_kubeflow_sdks(settings: dict[str, Any], expected: list[str]) -> None:
    """Recorded from get_args_using_torchtune_config of kubeflow 0.5.0."""
    assert TorchTuneSettings.model_validate(settings).arguments("", OwnProgram()) == expected


def places(*words: str) -> list[str]:
    return [*INSTRUCT, *(f"dataset.{word}" for word in words)]


@pytest.mark.parametrize(
    ("settings", "uri", "own", "expected"),
    [
        (SOURCE, "hf://tatsu-lab/alpaca", FETCHED, places("source=csv", "data_dir=/workspace/dataset")),
        (SOURCE, "hf://tatsu-lab/alpaca/data/", FETCHED, places("source=csv", "data_dir=/workspace/dataset/data")),
        (SOURCE, "hf://tatsu-lab/alpaca/data/v1.0", FETCHED, places("source=csv", "data_dir=/workspace/dataset/data/v1.0")),
        ({}, "hf://a/b/data/train.jsonl", FETCHED, places("source=json", "data_files=/workspace/dataset/data/train.jsonl")),
        ({}, "hf://a/b/c.parquet", FETCHED, places("source=parquet", "data_files=/workspace/dataset/c.parquet")),
        (SOURCE, "s3://bucket/data", FETCHED, places("source=csv", "data_dir=/workspace/dataset")),
        ({}, "s3://bucket/data/train.json.gz", FETCHED, places("source=json", "data_files=/workspace/dataset/train.json.gz")),
        ({}, "hf://a/b/data", OF_RUNTIME, places("source=parquet", "data_dir=/workspace/dataset/data")),
        (
            SOURCE,
            "",
            OF_RUNTIME,
            [
                "dataset=torchtune.datasets.chat_dataset",
                "dataset.split=train",
                "dataset.source=csv",
                "dataset.data_dir=/workspace/dataset/data",
            ],
        ),
        *(
            (
                {},
                uri,
                PREPARED,
                places(
                    "source=json",
                    "data_files=/workspace/dataset/train.jsonl",
                    "column_map={'input': 'prompt', 'output': 'completion'}",
                ),
            )
            for uri in ("pvc://claim/rows", "https://example.com/rows.csv", "hf://a/b@v1/data", "")
        ),
    ],
)
def test_torchtune_reads_the_rows_where_the_initializer_leaves_them(
    settings: dict[str, Any], uri: str, own: OwnProgram, expected: list[str]
) -> None:
    made = TorchTuneSettings.model_validate(settings).arguments(uri, own)
    assert (made[:2], sorted(made[2:])) == (expected[:2], sorted(expected[2:]))


@pytest.mark.parametrize(
    ("settings", "uri", "own", "field", "words"),
    [
        ({}, "hf://a/b", FETCHED, "settings.dataset_preprocess_config.source", "the format of the files in hf://a/b is unknown"),
        (SOURCE, "gs://bucket/data", FETCHED, "dataset_uri", "the initializer of the runtime does not fetch gs://"),
        (SOURCE, "cache://schema/table", FETCHED, "dataset_uri", "the scheme 'cache' is not supported"),
        ({"epochs": 1}, "", FETCHED, "dataset_uri", "the runtime's command does not say where its dataset lies"),
        (SOURCE, "pvc://claim/x", PREPARED, "settings.dataset_preprocess_config.source", "rows are prepared as json"),
    ],
)
def test_torchtune_never_trains_on_the_recipes_own_data(
    settings: dict[str, Any], uri: str, own: OwnProgram, field: str, words: str
) -> None:
    with pytest.raises(WrongField, match=words) as raised:
        TorchTuneSettings.model_validate(settings).arguments(uri, own)
    assert raised.value.field == field


SOURCES = (
    ("dataset_uri", "https://example.com/rows.csv", "reads only hf:// and s3://, not https://"),
    ("dataset_uri", "pvc://claim/rows", "cannot read pvc://"),
    ("dataset_uri", "hf://a/b@v1/rows.csv", "reads only hf://org/name[/path], without the revision 'v1'"),
    ("dataset_uri", "hf://datasets/a/b/rows.csv", "without the prefix datasets/"),
    ("dataset_uri", "hf://squad@main", "without the revision"),
    ("dataset_uri", "hf://squad", "without a repository without an owner"),
    ("dataset_uri", "hf://models/a/b", "names a model, but a dataset is needed"),
    ("model_uri", "hf://a/b/c", "reads only hf://org/name, without a folder of a repository"),
    ("model_uri", "file:///models/a", "reads only hf:// and s3://, not file://"),
)


@pytest.mark.parametrize(("field", "uri", "words"), SOURCES)
def test_sources_that_the_initializer_cannot_fetch_are_refused(field: str, uri: str, words: str) -> None:
    request = train_request(**{"runtime": "torchtune-llama3.2-1b", "settings": SOURCE, field: uri})
    assert field in refusal(request)
    assert words in refusal(request)
    if "names a" not in words:  # those of Trainwright fetch it
        resolve(train_request(**{"runtime": "trl-sft", field: uri}), definition("trl-sft"))


def test_model_of_a_single_address_is_refused() -> None:
    assert "but a model is a folder" in refusal(train_request(runtime="trl-sft", model_uri="https://example.com/model.bin"))


def test_a_torchtune_job_runs_trainers_recipe() -> None:
    runtime = "torchtune-llama3.2-1b"
    request = train_request(
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
        "model.lora_rank=8",
        "model.lora_attn_modules=[q_proj,v_proj,output_proj]",
        "dataset=torchtune.datasets.instruct_dataset",
        "dataset.split=train",
        "dataset.source=parquet",
        "dataset.data_dir=/workspace/dataset/data",
    ]
