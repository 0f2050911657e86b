"""An export names the base of its adapter as others can fetch it, says where generation stops, and has our card; again and again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import checkpoint_files, stored_path
from typer.testing import CliRunner

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.find import latest_checkpoint
from trainwright.checkpoints.manifest import Manifest
from trainwright.checkpoints.origin import Inputs, Source, base_advice, name_and_revision, recorded_inputs, source_of
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.model_card import CardContext, export_page, model_card
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.checkpoints.resume_point import ResumeOptions, resume_point
from trainwright.checkpoints.special_tokens import generation_settings
from trainwright.cli.app import app
from trainwright.workspace.receipt import Receipt, ReceiptFile

COMMIT = "c0ffee" * 6 + "c0ff"
HUB = {"source": "hf://org/base@main", "revision": COMMIT}
PEFT_CARD = b"---\nlibrary_name: peft\n---\n\n# Model Card for Model ID\n\n[More Information Needed]\n"
ADAPTER = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "MODEL",
    "revision": None,
    "r": 8,
}
FILES = {
    "adapter_config.json": json.dumps(ADAPTER).encode(),
    "README.md": PEFT_CARD,
    "tokenizer_config.json": b'{"eos_token": "<|im_end|>", "pad_token": "<pad>"}',
    "tokenizer.json": json.dumps({"added_tokens": [{"id": 5, "content": "<|im_end|>"}, {"id": 2, "content": "<pad>"}]}).encode(),
}
Prepare = Callable[..., Path]


@pytest.fixture
def prepare(workspace: Path, write_checkpoint: Callable[..., Path], output: Path) -> Prepare:
    """`prepare(source, revision, **files)`: the output of a training on a prepared model of that source, with a checkpoint."""

    def make(source: str = HUB["source"], revision: str = HUB["revision"], step: int = 5, **files: bytes | None) -> Path:
        for kind, uri in (("model", source), ("dataset", "s3://bucket/rows")):
            folder = workspace / kind
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "generation_config.json").write_text('{"eos_token_id": [1, 7], "temperature": 0.6}')
            listed = (ReceiptFile(path="file", size=1, sha256="1" * 64),)
            Receipt(kind=kind, source=uri, revision=revision if kind == "model" else "", files=listed).write(folder)
        resume_point(workspace)
        made = write_checkpoint(step, **{**_with_path(FILES, workspace), **files})
        shutil.copytree(made, workspace / "output" / made.name)
        return workspace / "output"

    return make


def _with_path(files: dict[str, bytes], workspace: Path) -> dict[str, bytes]:
    """The files of an adapter as PEFT writes them in a pod, where the base model is in a folder of the workspace."""
    return {name: content.replace(b"MODEL", str(workspace / "model").encode()) for name, content in files.items()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "exports" / "support"


def export(output: Path, target: Path, **options: Any) -> ExportResult:
    return export_checkpoint(output, target.as_uri(), source="support/job", options=ExportOptions(**options))


def content(exported: ExportResult, name: str) -> bytes:
    found = open_export(exported.uri, exported.digest).read(name)
    assert found is not None, name
    return found


def adapter_config(exported: ExportResult) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content(exported, "adapter_config.json"))
    return found


def test_adapter_names_the_repository_of_its_base_with_the_commit(prepare: Prepare, target: Path) -> None:
    output = prepare()
    exported = export(output, target)
    assert adapter_config(exported) == {**ADAPTER, "base_model_name_or_path": "org/base", "revision": COMMIT}
    kept = json.loads((output / "checkpoint-5" / "adapter_config.json").read_bytes())
    assert kept == {**ADAPTER, "base_model_name_or_path": str(output.parent / "model")}
    assert exported.manifest.metadata["sources"] == {"model": HUB, "dataset": {"source": "s3://bucket/rows", "revision": ""}}
    verify_export(exported.uri, digest=exported.digest)


@pytest.mark.parametrize(
    ("source", "revision", "name"),
    [
        ("org/base", COMMIT, ("org/base", COMMIT)),
        ("hf://org/base@v1", "", ("org/base", "v1")),
        ("hf://org/base@v1/inner", COMMIT, ("hf://org/base@v1/inner", "")),
        ("/models/my base", "digest", ("/models/my base", "")),
        ("file:///models/base", "digest", ("/models/base", "")),
        ("file:///exports/run/checkpoint-5", "export:sha256:0", ("file:///exports/run/checkpoint-5", "")),
        ("s3://bucket/base", "digest", ("s3://bucket/base", "")),
    ],
)
def test_base_is_named_as_libraries_load_it_or_by_its_uri(source: str, revision: str, name: tuple[str, str]) -> None:
    found = source_of(Receipt(kind="model", source=source, revision=revision, files=()))
    assert found is not None
    assert name_and_revision(found) == name


def test_base_from_the_folder_of_a_run_is_the_export_that_was_fetched() -> None:
    export = {"uri": "s3://exports/run/checkpoint-5", "digest": "sha256:0"}
    found = source_of(Receipt(kind="model", source="s3://exports/run", revision="export:x", files=(), details={"export": export}))
    assert found == {"source": "s3://exports/run/checkpoint-5", "revision": "export:x"}


def test_source_has_neither_query_nor_an_unknown_form() -> None:
    signed = Receipt(kind="dataset", source="https://host/rows.jsonl?signature=secret", revision="", files=())
    assert source_of(signed) == {"source": "https://host/rows.jsonl", "revision": ""}
    assert source_of(Receipt(kind="dataset", source="dvc pull", revision="", files=())) is None


@pytest.mark.parametrize(
    ("named", "expected"),
    [("org/other", "org/other"), (None, "org/base"), ("model", "model"), (5, 5), ("/mnt/another", "/mnt/another")],
)
def test_name_that_a_program_has_given_is_kept(prepare: Prepare, target: Path, named: Any, expected: Any) -> None:
    config = json.dumps({**ADAPTER, "base_model_name_or_path": named}).encode()
    assert adapter_config(export(prepare(**{"adapter_config.json": config}), target))["base_model_name_or_path"] == expected


def test_each_adapter_of_a_checkpoint_names_its_base(prepare: Prepare, target: Path) -> None:
    config, weights = (
        FILES["adapter_config.json"].replace(b"MODEL", str(target.parents[1] / "workspace" / "model").encode()),
        checkpoint_files(5)["adapter_model.safetensors"],
    )
    exported = export(prepare(**{"ref/adapter_config.json": config, "ref/adapter_model.safetensors": weights}), target)
    assert json.loads(content(exported, "ref/adapter_config.json"))["base_model_name_or_path"] == "org/base"


def test_adapter_of_an_unknown_base_is_exported_as_it_is(
    output: Path, write_checkpoint: Callable[..., Path], target: Path
) -> None:
    write_checkpoint(5, **FILES)
    assert content(export(output, target), "adapter_config.json") == FILES["adapter_config.json"]


def test_adapter_has_the_generation_settings_of_its_base_with_its_own_end_token(
    prepare: Prepare, target: Path, tmp_path: Path
) -> None:
    exported = export(prepare(), target)
    settings = {"eos_token_id": [5, 1, 7], "pad_token_id": 2, "temperature": 0.6}
    assert json.loads(content(exported, "generation_config.json")) == settings
    restore_checkpoint(exported.uri, tmp_path / "restored")
    assert generation_settings(tmp_path / "restored")["eos_token_id"] == [5, 1, 7]


def test_generation_settings_that_the_program_has_written_are_kept(prepare: Prepare, target: Path) -> None:
    assert content(export(prepare(**{"generation_config.json": b"{}"}), target), "generation_config.json") == b"{}"


@pytest.mark.medium
def test_second_export_finds_the_first(prepare: Prepare, target: Path) -> None:
    output = prepare()
    first = export(output, target)
    again = export(output, target)
    assert (again.existed, again.digest) == (True, first.digest)
    assert export(output, target, supersede=True).existed


@pytest.mark.medium
def test_damaged_file_that_was_written_for_the_export_is_repaired(prepare: Prepare, target: Path) -> None:
    output = prepare()
    first = export(output, target)
    for name in ("README.md", "adapter_config.json", "generation_config.json"):
        stored_path(target / "checkpoint-5", name).write_bytes(b"damaged")
    assert export(output, target).existed
    verify_export(first.uri, digest=first.digest)


@pytest.mark.medium
def test_export_of_another_version_is_of_the_same_checkpoint(
    prepare: Prepare, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = prepare()
    with monkeypatch.context() as earlier:
        earlier.setattr("trainwright.checkpoints.publish.derived_files", lambda *_: {})
        first = export(output, target)
    assert content(first, "README.md") == PEFT_CARD
    assert export(output, target).digest == first.digest
    newer = export(output, target, supersede=True)
    assert (newer.existed, newer.manifest.supersedes) == (False, first.digest)
    assert adapter_config(newer)["base_model_name_or_path"] == "org/base"


def test_export_of_an_adapter_with_other_settings_is_refused(prepare: Prepare, target: Path) -> None:
    output = prepare()
    export(output, target)
    path = output / "checkpoint-5" / "adapter_config.json"
    path.write_bytes(json.dumps({**json.loads(path.read_bytes()), "r": 9}).encode())
    with pytest.raises(CheckpointError, match=r"is a different checkpoint of this step.*adapter_config.json differs"):
        export(output, target)


def test_stored_file_that_is_damaged_and_cannot_be_written_again_is_an_error(
    prepare: Prepare, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = prepare()
    with monkeypatch.context() as earlier:
        earlier.setattr("trainwright.checkpoints.publish.derived_files", lambda *_: {})
        first = export(output, target)
    assert not first.existed
    stored_path(target / "checkpoint-5", "README.md").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"README.md is missing or corrupt; publish the checkpoint anew: supersede it"):
        export(output, target)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("hf://org/base@main", HUB), ("org/mine", {"source": "hf://org/mine", "revision": ""}), ("", HUB)],
)
def test_base_is_named_as_this_job_has_asked_for_it(given: str, expected: Any) -> None:
    receipt = Receipt(kind="model", source=HUB["source"], revision=HUB["revision"], files=())
    assert source_of(receipt, given) == expected


def test_export_of_other_weights_for_the_same_step_is_refused(prepare: Prepare, target: Path) -> None:
    output = prepare()
    export(output, target)
    shutil.rmtree(output / "checkpoint-5")
    prepare(**{"adapter_model.safetensors": checkpoint_files(5, b"others")["adapter_model.safetensors"]})
    with pytest.raises(CheckpointError, match=r"adapter_model.safetensors differs"):
        export(output, target)


@pytest.mark.medium
def test_training_resumes_from_the_export(prepare: Prepare, target: Path, workspace: Path) -> None:
    exported = export(prepare(), target)
    shutil.rmtree(workspace / "output")
    point = resume_point(workspace, options=ResumeOptions(export=exported.uri, job="job"))
    assert point == workspace / "output" / "checkpoint-5"
    assert latest_checkpoint(workspace / "output").path == point
    again = export(workspace / "output", target)
    assert (again.existed, again.digest) == (True, exported.digest)


def test_card_of_the_export_says_what_was_trained(prepare: Prepare, target: Path) -> None:
    log = [{"step": 5, "loss": 1.5}, {"step": 5, "eval_loss": 1.25}]
    state = json.dumps({"global_step": 5, "log_history": log}).encode()
    card = content(export(prepare(**{"trainer_state.json": state, "chat_template.jinja": b"x"}), target), "README.md").decode()
    for part in (
        "---\nbase_model: org/base\nbase_model_relation: adapter\nlibrary_name: peft\n",
        "# support, step 5",
        "Adapter of [org/base](https://huggingface.co/org/base)",
        "| `eval_loss` | 1.25 |",
        "AutoPeftModelForCausalLM.from_pretrained",
        "GenerationConfig.from_pretrained",
        "--lora-modules tuned=./model --generation-config ./model --chat-template ./model/chat_template.jinja",
        "| source of the dataset | `rows` |",
        "| source of the model | `hf://org/base@main` |",
        f"| its revision | `{COMMIT}` |",
        "| chat template | `chat_template.jinja` |",
    ):
        assert part in card, part
    assert "Model ID" not in card


@pytest.mark.parametrize(
    "readme",
    [
        b"<!-- This model card has been generated automatically according to the information the Trainer had access to. -->",
        b"This model was fine-tuned. It has been trained using [TRL](https://github.com/huggingface/trl).",
        None,
    ],
)
def test_card_of_a_library_is_replaced(prepare: Prepare, target: Path, readme: bytes | None) -> None:
    assert b"# support, step 5" in content(export(prepare(**{"README.md": readme}), target), "README.md")


def test_card_that_the_program_has_written_is_kept(prepare: Prepare, target: Path) -> None:
    assert content(export(prepare(**{"README.md": b"# Ours"}), target), "README.md") == b"# Ours"


def test_checkpoint_of_no_known_task_gets_no_card(output: Path, write_checkpoint: Callable[..., Path], target: Path) -> None:
    write_checkpoint(5)
    assert "README.md" not in {file.path for file in export(output, target).manifest.files}


def test_cards_name_no_bucket(prepare: Prepare, target: Path) -> None:
    exported = export(prepare("s3://private/base", "etag"), target)
    facts = read_facts(open_export(exported.uri, exported.digest))
    card = model_card(facts, CardContext("acme/support", base_model="org/base"))
    assert 'PeftModel.from_pretrained(base, "acme/support")' in card
    for text in (card, export_page(facts), content(exported, "README.md").decode()):
        assert "s3://" not in text
        assert "etag" not in text
        assert "| source of the model | `base` |" in text


def test_record_that_is_broken_names_no_base(prepare: Prepare, target: Path) -> None:
    output = prepare()
    assert recorded_inputs(output).base_name == ("org/base", COMMIT)
    for broken in (
        "{",
        "[]",
        '{"sources": 5}',
        '{"sources": {"model": {"source": 5, "revision": ""}}}',
        '{"sources": {"model": {"source": "a\\nb", "revision": ""}}, "generation": 1}',
    ):
        (output / ".trainwright-sources.json").write_text(broken)
        assert recorded_inputs(output) == Inputs()
    assert Inputs({"model": Source(source="no URI", revision="")}).base_name == ("", "")
    named = adapter_config(export(output, target))["base_model_name_or_path"]
    assert named == str(output.parent / "model")


def test_restore_says_how_to_get_a_base_that_libraries_cannot_fetch(prepare: Prepare, target: Path, tmp_path: Path) -> None:
    exported = export(prepare("s3://bucket/base", ""), target)
    done = CliRunner().invoke(app, ["restore", exported.uri, str(tmp_path / "restored"), "-o", "json"])
    assert json.loads(done.stdout)["base_model"] == "s3://bucket/base"
    assert "STORAGE_URI=s3://bucket/base python -m trainwright.initializers model --target ./base" in done.stderr
    assert "PeftModel.from_pretrained(AutoModelForCausalLM" in done.stderr


def test_advice_is_given_only_for_a_base_that_is_elsewhere(tmp_path: Path) -> None:
    assert base_advice("org/base", tmp_path) == base_advice(str(tmp_path), tmp_path) == base_advice("", tmp_path) == ""
    assert "which is not on this machine" in base_advice(str(tmp_path / "gone"), tmp_path)


def test_manifest_lists_what_was_written(prepare: Prepare, target: Path) -> None:
    exported = export(prepare(), target)
    manifest: Manifest = open_export(exported.uri).manifest
    listed = {file.path: file.sha256 for file in manifest.files}
    for name in ("README.md", "adapter_config.json", "generation_config.json"):
        assert listed[name] == hashlib.sha256(content(exported, name)).hexdigest()
