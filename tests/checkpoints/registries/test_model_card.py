"""The model card says what is known, in the form that the Hub reads, and nothing that others have written gets out of its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.registries import export_facts
from trainwright.checkpoints.registries.export_facts import ExportFacts, read_facts
from trainwright.checkpoints.registries.model_card import CardContext, export_page, model_card
from trainwright.checkpoints.registries.registration import RegistrationError
from trainwright.text.foreign_texts import code, escaped

MakeExport = Callable[..., str]
DIGEST = f"sha256:{'a' * 64}"
FACTS = ExportFacts("s3://bucket/run/checkpoint-5", DIGEST, 5, "hf-trainer", "2026-11-23T00:00:00Z", run="llama-sft")


def front_matter(card: str) -> dict[str, Any]:
    _, head, _ = card.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(head)
    return found


def test_the_card_of_an_adapter(make_export: MakeExport) -> None:
    export = open_export(make_export())
    card = model_card(read_facts(export), CardContext("acme/llama-sft", datasets=("acme/chats",), has_curve=True))
    assert front_matter(card) == {
        "base_model": "meta/llama-3",
        "base_model_relation": "adapter",
        "datasets": ["acme/chats"],
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["trainwright"],
    }
    for part in (
        "# llama\\-sft\n",
        "Adapter of [meta/llama\\-3](https://huggingface.co/meta/llama-3), trained for 5 steps",
        "| `eval_loss` | 1.5 |",
        "![training loss](loss_curve.svg)",
        "| 3 | 1.75 |  |\n| 5 | 1.25 | 1.5 |",
        'AutoPeftModelForCausalLM.from_pretrained("acme/llama-sft")',
        f"| manifest of the export | `{export.manifest.digest}` |",
        "| run | `llama-sft` |",
        "| TrainJob | `llama-sft-0` |",
        f"| dataset | `sha256:{'d' * 64}` |",
        f"| model | `sha256:{'e' * 64}` |",
    ):
        assert part in card, part


@pytest.mark.parametrize(
    ("trainer", "words", "tags"),
    [
        ("sft", "trained with supervised fine-tuning for 5 steps", ["trainwright", "sft"]),
        ("dpo", "trained with direct preference optimization (DPO) for 5 steps", ["trainwright", "dpo"]),
        ("acme", "trained with `acme` for 5 steps", ["trainwright", "acme"]),
        ("", "Checkpoint, trained for 5 steps", ["trainwright"]),
    ],
)
def test_card_names_the_method(trainer: str, words: str, tags: list[str]) -> None:
    card = model_card(replace(FACTS, trainer=trainer), CardContext("acme/model"))
    assert words in card
    assert front_matter(card)["tags"] == tags


@pytest.mark.parametrize(
    ("recorded", "trainer"), [({"trainer": "dpo"}, "dpo"), ({"trainer": "a\nb"}, ""), ({"trainer": 5}, ""), ([], "")]
)
def test_trainer_of_an_export_is_a_name_or_unknown(recorded: Any, trainer: str) -> None:
    assert export_facts._trainer({"origin": recorded}) == trainer


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, ("transformers", "text-generation", "")),
        (
            {"architectures": ["BertForSequenceClassification"], "_name_or_path": "a/b"},
            ("transformers", "text-classification", "a/b"),
        ),
        ({"architectures": ["Unknown"], "_name_or_path": "/workspace/model"}, ("transformers", "", "")),
        ({"architectures": [None], "_name_or_path": "a/b\n"}, ("transformers", "", "")),
        ({"architectures": "LlamaForCausalLM", "_name_or_path": 5}, ("transformers", "", "")),
        ({}, ("", "", "")),
        ([], ("", "", "")),
    ],
)
def test_library_and_task_come_from_the_configuration(
    make_export: MakeExport, config: Any, expected: tuple[str, str, str]
) -> None:
    files = {"config.json": json.dumps(config).encode(), "adapter_config.json": None, "adapter_model.safetensors": None}
    weights = (2).to_bytes(8, "little") + b"{}"
    facts = read_facts(open_export(make_export(**files, **{"model.safetensors": weights})))
    assert (facts.library, facts.pipeline_tag, facts.base_model) == expected


def test_model_card_omits_unknown_facts() -> None:
    card = model_card(replace(FACTS, run=""), CardContext("acme/model"))
    assert front_matter(card) == {"tags": ["trainwright"]}
    assert "Checkpoint, trained for 5 steps." in card
    assert "Metrics" not in card
    assert "s3://" not in card
    assert 'snapshot_download("acme/model")' in card


def test_long_histories_are_shortened_to_a_few_rows() -> None:
    history = [{"step": step, "loss": 1.0} for step in range(1, 5001)]
    card = model_card(replace(FACTS, log_history=history), CardContext("acme/model"))
    assert card.count("| 1 |  |\n") == 12
    assert "| 1 | 1 |" in card
    assert "| 5000 | 1 |" in card


@pytest.mark.parametrize(
    "history",
    [[{"step": "5", "loss": 1.0}], [{"step": True, "loss": 1.0}], [{"loss": 1.0}], [{"step": 5, "loss": float("nan")}]],
)
def test_entries_that_are_no_losses_are_skipped(history: list[dict[str, Any]]) -> None:
    assert "## Training" not in model_card(replace(FACTS, log_history=history), CardContext("acme/model"))


@pytest.mark.parametrize("name", ["model", "/workspace/model", "a/b/c", "a/b\n", "a/b](http://evil)"])
def test_sources_must_be_names_on_the_hub(name: str) -> None:
    for options in ({"base_model": name}, {"datasets": (name,)}):
        with pytest.raises(RegistrationError, match="is not org/name"):
            CardContext("acme/model", **options)  # type: ignore[arg-type]


def test_card_names_what_the_dataset_does_not_teach_and_no_place(make_export: MakeExport) -> None:
    finding = {"severity": "warning", "name": "never_stops", "text": "none has </s>, which ends what s3://secret/base generates"}
    metadata = {"origin": {}, "data_findings": [finding, {**finding, "severity": "note"}, {"severity": "warning"}, "warning"]}
    facts = read_facts(open_export(make_export(metadata=metadata)))
    assert facts.findings == ("warning: none has </s>, which ends what the base model generates",)
    assert facts.finding_names == ("never_stops",)
    for card in (model_card(facts, CardContext("acme/m")), export_page(facts)):
        assert "## Dataset\n\n- warning\\: none has \\</s\\>, which ends what the base model generates\n" in card
    assert "## Dataset" not in model_card(read_facts(open_export(make_export(6))), CardContext("acme/m"))


def test_facts_are_read_from_verified_files_only(make_export: MakeExport) -> None:
    from pathlib import Path

    export = open_export(make_export())
    (file,) = (each for each in export.manifest.files if each.path == "adapter_config.json")
    Path(export.store.uri.location, file.key).write_bytes(b'{"base_model_name_or_path": "evil/model"}')
    with pytest.raises(CheckpointError, match=r"adapter_config\.json is corrupt"):
        read_facts(export)


@pytest.mark.parametrize(
    ("source", "run", "trainjob"),
    [
        ("llama-sft/llama-sft-0", "llama-sft", "llama-sft-0"),
        ("a/b/job", "a/b", "job"),
        ("run/", "run", ""),
        ("run", "run", ""),
        ("/home/somebody/output", "", ""),
        ("ru\x1b[31mn\n/job", "ru [31mn", "job"),
    ],
)
def test_run_and_job_come_from_the_source(make_export: MakeExport, source: str, run: str, trainjob: str) -> None:
    facts = read_facts(open_export(make_export(source=source)))
    assert (facts.run, facts.trainjob) == (run, trainjob)


HOSTILE = (
    "|---|\n# heading",
    "[link](http://evil)",
    "![image](http://evil)",
    "<script>alert(1)</script>",
    "``` code",
    "\\|",
    "www.evil.com",
    "---\nbase_model: evil/model\n---",
    "\u202eright to left",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_in_their_place(text: str) -> None:
    facts = replace(
        FACTS, run=text, trainjob=text, format=text, metrics={text: 1.0}, library="peft", pipeline_tag="text-generation"
    )
    card = model_card(facts, CardContext("acme/model"))
    assert front_matter(card) == {"library_name": "peft", "pipeline_tag": "text-generation", "tags": ["trainwright"]}
    benign = model_card(replace(facts, run="a", trainjob="a", format="a", metrics={"a": 1.0}), CardContext("acme/model"))
    assert card.count("\n") == benign.count("\n")
    for line, expected in zip(card.splitlines(), benign.splitlines(), strict=True):
        cells = line.replace("\\\\", "").replace("\\|", "").count("|")
        assert cells == expected.count("|"), line
    assert "\u202e" not in card
    assert kinds(card) == kinds(benign)


def kinds(card: str) -> list[tuple[str, str]]:
    """The elements that a reader of Markdown finds, with the targets of links and pictures."""
    tokens = MarkdownIt("commonmark").enable("table").parse(card.split("---\n", 2)[2])
    inner = [child for token in tokens for child in (token.children or [token])]
    return [
        (each.type, str(each.attrGet("href") or each.attrGet("src") or ""))
        for each in inner
        if each.type not in ("text", "code_inline")
    ]


@given(st.text())
def test_property_no_text_leaves_its_cell(text: str) -> None:
    for form in (escaped(text), code(text)):
        assert "\n" not in form
        assert "|" not in form.replace("\\\\", "").replace("\\|", "")
    assert "<" not in escaped(text).replace("\\<", "")
