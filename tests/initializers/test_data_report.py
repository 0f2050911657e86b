"""The report on a prepared dataset: its figures, its pages, and the rows on which a training would fail later."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from servers.hub_server import HubServer
from support.optional_packages import require_packages
from support.tiny_tokenizer import EOS, write_tokenizer

from trainwright.initializers import DatasetOptions, InitializerError, initialize_dataset, same_rows
from trainwright.initializers.data_report import model_tokenizer, token_counts
from trainwright.initializers.data_report.figures import DataReport, token_figures
from trainwright.initializers.data_report.model_tokenizer import learns_messages
from trainwright.initializers.data_report.pages import html_page, markdown_page
from trainwright.initializers.data_report.report import DataUnfit, report_dataset
from trainwright.initializers.data_report.token_program import measured
from trainwright.initializers.report_options import ReportOptions
from trainwright.text import chat_templates

require_packages("transformers", "jinja2")
pytestmark = pytest.mark.medium

Row = dict[str, Any]
USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def reported(
    folder: Path, train: list[Row], test: list[Row] | None = None, *, as_messages: bool = False, **options: Any
) -> DataReport:
    """Prepare the rows and report on them."""
    (folder / "rows").mkdir(parents=True)
    for name, rows in (("train", train), ("test", test or [])):
        if rows:
            (folder / "rows" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    receipt = initialize_dataset(
        f"file://{folder}/rows", folder / "out", DatasetOptions(test_fraction=0), as_messages=as_messages
    )
    return report_dataset(folder / "out", receipt, ReportOptions(**options))


@pytest.fixture(autouse=True)
def in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure here, but for tests with `in_a_process` in their name: transformers takes two seconds to import."""
    if "in_a_process" not in request.node.name:
        monkeypatch.setattr(model_tokenizer, "_run", lambda asked, _folder: measured(asked))


@pytest.fixture
def model(tmp_path: Path) -> str:
    return f"file://{write_tokenizer(tmp_path / 'model')}"


def text(letters: int) -> Row:
    """A row of this number of tokens, with BOS and EOS."""
    return {"text": "a" * (letters - 2)}


def test_rows_duplicates_and_overlap_are_counted(tmp_path: Path) -> None:
    train = [{"prompt": p, "completion": c, "id": 1} for p, c in (("a", "1"), ("b", "2"), ("a", "1"), ("a", "1"), ("c", " "))]
    report = reported(tmp_path, train, [{"prompt": p, "completion": "2"} for p in "bxx"])
    assert {name: (split.rows, split.duplicates) for name, split in report.splits.items()} == {"train": (4, 2), "test": (3, 1)}
    assert report.overlap == 1
    assert report.dropped == {"no text": 1}
    assert report.dropped_columns == ("id",)
    assert report.tokens_missing == "no model was named"


def test_same_answers_are_a_reason_to_drop_rows(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "chosen": chosen, "rejected": "b"} for chosen in ("a", "b", " ")]
    assert reported(tmp_path, rows).dropped == {"no text": 1, "the same answer chosen and rejected": 1}


def test_token_figures_have_percentiles_and_rows_that_are_cut(tmp_path: Path, model: str) -> None:
    report = reported(tmp_path, [text(letters) for letters in range(3, 103)], [text(9)], model_uri=model, max_length=90)
    tokens = report.splits["train"].tokens
    assert tokens is not None
    assert (tokens.counted, tokens.p50, tokens.p95, tokens.longest, tokens.cut, tokens.emptied) == (100, 52, 97, 102, 12, 0)
    assert report.splits["test"].tokens == token_figures([9], ended=1)
    assert report.sample == f"<s>a{EOS}"
    assert report.has_chat_template


def test_tokens_of_many_rows_are_counted_in_some_of_all_parts(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_counts, "MAX_COUNTED", 10)
    monkeypatch.setattr(token_counts, "_BATCH", 3)
    report = reported(tmp_path, [text(3)] * 21 + [text(50)] * 20, model_uri=model)
    tokens = report.splits["train"].tokens
    assert tokens is not None
    assert (tokens.counted, tokens.p50, tokens.longest) == (9, 3, 50)
    assert "train: tokens were counted in 9 rows, evenly distributed" in html_page(report)


def test_rows_are_compared_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (same_rows, __import__("trainwright.initializers.data_report.report", fromlist=["report"])):
        monkeypatch.setattr(module, "MAX_COMPARED", 2)
    report = reported(tmp_path, [text(3)] * 4)
    assert report.splits["train"].duplicates == 1
    assert "duplicates were looked for in the first 2 rows" in html_page(report)


@pytest.mark.parametrize(
    ("rows", "files", "max_length", "message"),
    [
        ([{"messages": [USER, ANSWER]}], {"template": None}, 0, "has no chat template, but the rows are messages"),
        (
            [{"prompt": "a" * 9, "completion": "b"}] * 3,
            {},
            8,
            r"none of 3 rows has anything left to learn from \(num_samples=0\)",
        ),
        ([{"prompt": [USER] * 9, "completion": [ANSWER]}], {}, 8, "raise max_length, or shorten the prompts"),
        ([text(3)], {"eos_token": None}, 0, "names no eos_token"),
        (
            [{"messages": [USER, ANSWER]}] * 5 + [{"messages": [ANSWER, ANSWER]}],
            {"template": "{% if messages[0].role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}x"},
            0,
            "train.jsonl row 6: the chat template rejects the messages: roles must alternate; the training with",
        ),
    ],
)
def test_rows_on_which_the_training_would_fail_are_refused(
    tmp_path: Path, rows: list[Row], files: dict[str, Any], max_length: int, message: str
) -> None:
    model = f"file://{write_tokenizer(tmp_path / 'model', **files)}"
    with pytest.raises(DataUnfit, match=message):
        reported(tmp_path / "a", rows, model_uri=model, max_length=max_length)
    report = reported(tmp_path / "b", rows, model_uri=model, max_length=max_length, report_mode="off")
    assert report.tokens_missing == "report_mode=off"
    report = reported(tmp_path / "c", rows, model_uri=model, max_length=max_length, report_mode="warn")
    assert re.search(message, report.tokens_missing)
    assert report.splits["train"].tokens is None


@pytest.mark.parametrize(
    ("config", "files", "message"),
    [
        ({"architectures": ["BertForMaskedLM"]}, {}, "cannot be trained: it is a BertForMaskedLM, which does not write text"),
        (
            {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}, "model_type": "own"},
            {},
            r"needs the code in its repository .* does not know the model_type 'own'; use a model of a type that it knows",
        ),
        ({"vocab_size": 300}, {"eos_token": None}, "names no eos_token"),
        (
            {"vocab_size": 100},
            {},
            r"train.jsonl row 2: the token '\w+' has the id \d+, but the model has embeddings for 100 only",
        ),
        (
            {"vocab_size": 1},
            {},
            "the eos_token '</s>' of .* has the id 1, but the model has embeddings for 1 tokens only: resize",
        ),
    ],
)
def test_models_that_cannot_be_trained_are_refused(
    tmp_path: Path, config: dict[str, Any], files: dict[str, Any], message: str
) -> None:
    folder = write_tokenizer(tmp_path / "model", **files)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    rows = [{"text": "!"}, {"text": "\u00ff"}]
    with pytest.raises(DataUnfit, match=message):
        reported(tmp_path / "a", rows, model_uri=f"file://{folder}")
    report = reported(tmp_path / "b", rows, model_uri=f"file://{folder}", report_mode="warn")
    assert re.search(message, report.tokens_missing)


@pytest.mark.parametrize(
    "config", [{"auto_map": {"AutoConfig": "own.Own"}, "model_type": "llama"}, {"model_type": "own"}, {"vocab_size": 300}]
)
def test_models_that_may_be_trained_are_reported_on(tmp_path: Path, config: Any) -> None:
    folder = write_tokenizer(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    assert reported(tmp_path, [text(3)], model_uri=f"file://{folder}").splits["train"].tokens == token_figures([3], ended=1)


def test_some_rows_with_nothing_left_are_no_error(tmp_path: Path, model: str) -> None:
    rows = [{"prompt": "a" * length, "completion": "b"} for length in (1, 2, 9)]
    tokens = reported(tmp_path, rows, model_uri=model, max_length=8).splits["train"].tokens
    assert tokens is not None
    assert (tokens.cut, tokens.emptied) == (1, 1)


@pytest.mark.parametrize("name", ["org/absent", "org/gated", "org/slow"])
def test_tokenizer_that_cannot_be_fetched_is_said_or_an_error_if_required(tmp_path: Path, hub: HubServer, name: str) -> None:
    if name == "org/slow":
        hub.repository(f"models/{name}").push({"config.json": b"{}", "tokenizer_config.json": b"{}", "tokenizer.model": b"s"})
    if name == "org/gated":
        hub.repository(f"models/{name}").push({"tokenizer.json": b"{"})
    report = reported(tmp_path / "a", [text(3)], model_uri=f"hf://{name}")
    assert report.splits["train"].tokens is None
    assert report.tokens_missing
    assert f"tokens were not counted: {report.tokens_missing}" in html_page(report).replace("&#x27;", "'")
    with pytest.raises(InitializerError, match=f"the tokenizer of hf://{name} cannot be used"):
        reported(tmp_path / "b", [text(3)], model_uri=f"hf://{name}", report_mode="required")


def test_tokenizer_alone_is_fetched(tmp_path: Path, hub: HubServer) -> None:
    files = {path.name: path.read_bytes() for path in write_tokenizer(tmp_path / "model").iterdir()}
    hub.repository("models/org/model").push({**files, "model.safetensors": b"w", "config.json": b"{}"})
    report = reported(tmp_path, [text(3)], model_uri="hf://org/model")
    assert report.splits["train"].tokens == token_figures([3], ended=1)
    assert {*hub.downloads()} == {*files, "config.json"}


def test_model_that_is_no_address_is_an_error() -> None:
    with pytest.raises(ValidationError, match="the scheme 'ftp' is not supported yet"):
        ReportOptions(model_uri="ftp://host/model")


def test_required_report_without_a_model_is_an_error() -> None:
    with pytest.raises(ValidationError, match="required needs a model"):
        ReportOptions(report_mode="required")


def test_missing_packages_are_said(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    report = reported(tmp_path, [text(3)], model_uri=model)
    assert report.tokens_missing == "transformers is not installed: install trainwright[launcher]"


def test_texts_of_rows_are_escaped_and_cut(tmp_path: Path, model: str) -> None:
    hostile = "<script>alert(1)</script> ``` | " + "x" * 5000
    report = reported(tmp_path, [{"text": hostile}], model_uri=model)
    page, markdown = html_page(report), markdown_page(report)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert len(page) < 4000
    assert len(markdown) < 3000
    assert "````text" in markdown


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_TOKENS = {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}


@pytest.mark.parametrize(
    ("rows", "files", "more", "max_length", "expected"),
    [
        ([{"prompt": "p", "completion": "c"}] * 20, {}, {}, 90, []),
        ([{"prompt": "p", "completion": "c"}] * 20, {}, {}, 0, [("not checked", "cut_answers")]),
        ([{"prompt": "p", "completion": "c" * size} for size in range(20)], {}, {}, 21, [("warning", "cut_answers")]),
        ([{"prompt": "p", "completion": "c" * size} for size in range(20)], {}, {}, 22, []),
        ([{"prompt": "p", "completion": "c" * 20}] * 3, {}, {}, 9, [("refused", "cut_answers")]),
        ([{"text": "c" * 20}] * 3, {}, {}, 9, []),
        ([{"messages": [USER, ANSWER]}], {"template": CHATML, **CHATML_TOKENS}, {}, 90, [("warning", "never_stops")]),
        ([{"messages": [USER, ANSWER]}], {"template": CHATML, **CHATML_TOKENS, "eos_token": "<|im_end|>"}, {}, 90, []),
        (
            [{"prompt": [USER], "completion": [ANSWER]}],
            {"template": CHATML, **CHATML_TOKENS},
            {},
            90,
            [("warning", "never_stops")],
        ),
        (
            [{"prompt": [USER], "chosen": [ANSWER], "rejected": [USER]}],
            {"template": CHATML, **CHATML_TOKENS},
            {"generation_config.json": {"eos_token_id": [260, 261]}},
            90,
            [],
        ),
        (
            [{"messages": [USER, ANSWER]}],
            {"template": CHATML, **CHATML_TOKENS},
            {"generation_config.json": {"eos_token_id": 1}, "config.json": {"eos_token_id": 261}},
            90,
            [("warning", "never_stops")],
        ),
        ([{"messages": [USER, ANSWER]}], {"template": CHATML, **CHATML_TOKENS}, {"config.json": {"eos_token_id": 261}}, 90, []),
    ],
)
def test_verdict_says_which_answers_end(
    tmp_path: Path, rows: list[Row], files: dict[str, Any], more: dict[str, Any], max_length: int, expected: list[tuple[str, str]]
) -> None:
    folder = write_tokenizer(tmp_path / "model", **files)
    for name, content in more.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    options: dict[str, Any] = {"model_uri": f"file://{folder}", "max_length": max_length}
    if expected == [("refused", "cut_answers")]:
        with pytest.raises(DataUnfit, match=r"3 of 3 rows have more than max_length=9 tokens .* max_length=23 keeps all"):
            reported(tmp_path / "refused", rows, **options)
        options["report_mode"], expected = "warn", [("warning", "cut_answers")]
    report = reported(tmp_path / "rows", rows, **options)
    assert [(found.severity, found.name) for found in report.findings] == expected
    for found in report.findings:
        assert f"{found.severity}: {found.text[:20]}" in markdown_page(report).replace("\\", "")
    if ("warning", "never_stops") in expected:
        assert "none has </s>" in report.findings[0].text
        assert "set end_token to it, or to auto" in report.findings[0].text
        assert '({"settings": {"end_token": "<|im_end|>"}})' in report.findings[0].text


@pytest.mark.parametrize(("token", "expected"), [("<|im_end|>", []), ("auto", []), ("<|no_token|>", None)])
def test_end_token_of_the_training_is_that_of_the_report(tmp_path: Path, token: str, expected: list[str] | None) -> None:
    model = f"file://{write_tokenizer(tmp_path / 'model', template=CHATML, **CHATML_TOKENS)}"
    options = {"model_uri": model, "max_length": 90, "end_token": token}
    if expected is None:
        with pytest.raises(DataUnfit, match="the end token of the training, is missing in the vocabulary of"):
            reported(tmp_path, [{"messages": [USER, ANSWER]}], **options)
    else:
        assert [found.name for found in reported(tmp_path, [{"messages": [USER, ANSWER]}], **options).findings] == expected


def test_preferences_are_not_offered_a_setting_of_sft(tmp_path: Path) -> None:
    model = f"file://{write_tokenizer(tmp_path / 'model', template=CHATML, **CHATML_TOKENS)}"
    row = {"prompt": [USER], "chosen": [ANSWER], "rejected": [{**ANSWER, "content": "b"}]}
    (found,) = reported(tmp_path, [row], model_uri=model, max_length=90).findings
    assert (found.severity, found.name) == ("warning", "never_stops")
    assert "train with sft and end_token=auto first, or use a model whose template ends turns with its end token" in found.text


ENDED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
)
MARKED = ENDED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")


@pytest.mark.parametrize(
    ("template", "loss_on", "expected"), [(ENDED, "answers", []), (MARKED, "answers", ["never_stops"]), (MARKED, "all", [])]
)
def test_loss_on_answers_alone_decides_by_the_marks_whether_the_end_is_learned(
    tmp_path: Path, template: str, loss_on: str, expected: list[str]
) -> None:
    folder = write_tokenizer(tmp_path / "model", template=template, **CHATML_TOKENS, eos_token="<|im_end|>")
    options = {"model_uri": f"file://{folder}", "max_length": 90, "loss_on": loss_on}
    report = reported(tmp_path, [{"messages": [USER, ANSWER]}], **options)
    assert [found.name for found in report.findings] == expected
    assert report.sample == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
    tokens = report.splits["train"].tokens
    assert tokens is not None
    assert (tokens.cut, tokens.emptied) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "template", "words"),
    [
        (
            [{"messages": [USER, ANSWER]}],
            CHATML,
            "does not mark the assistant's answers .* add the marks to the template, or use",
        ),
        ([{"messages": [USER, ANSWER]}, {"messages": [USER]}], ENDED, "train.jsonl row 2: it has no answer of the assistant"),
        (
            [{"prompt": "a", "completion": "b"}],
            ENDED,
            "loss_on=answers is for rows with messages, and these have prompt and compl",
        ),
        ([{"text": "a"}], ENDED, "these have texts, of which all is learned: leave it out"),
        ([{"prompt": "a", "chosen": "b", "rejected": "c"}], ENDED, "these have answers that are compared: leave it out"),
    ],
)
def test_loss_on_answers_is_refused_where_it_says_nothing(tmp_path: Path, rows: list[Row], template: str, words: str) -> None:
    require_packages("trl")
    folder = write_tokenizer(tmp_path / "model", template=template, **CHATML_TOKENS, eos_token="<|im_end|>")
    with pytest.raises(DataUnfit, match=words):
        reported(tmp_path, rows, model_uri=f"file://{folder}", max_length=90, loss_on="answers")


def test_loss_on_answers_without_trl_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "_trl_templates", lambda: None)
    folder = write_tokenizer(tmp_path / "model", template=CHATML, **CHATML_TOKENS)
    options = {"model_uri": f"file://{folder}", "max_length": 90, "loss_on": "answers"}
    (found,) = reported(tmp_path, [{"messages": [USER, ANSWER]}], **options).findings
    assert (found.severity, found.name) == ("not checked", "never_stops")


@pytest.mark.parametrize(
    ("files", "options", "trainer", "expected"),
    [
        ({}, {}, "", True),
        ({}, {}, "sft", True),
        ({}, {}, "dpo", True),
        ({}, {"report_mode": "warn"}, "sft", True),
        ({}, {"report_mode": "warn"}, "", False),
        ({}, {"report_mode": "off"}, "sft", False),
        ({}, {}, "torchtune", False),
        ({}, {}, "absent", False),
        ({"template": None}, {}, "sft", False),
    ],
)
def test_questions_become_messages_where_a_template_is_rendered(
    tmp_path: Path, files: dict[str, Any], options: dict[str, Any], trainer: str, expected: bool
) -> None:
    model = f"file://{write_tokenizer(tmp_path, **files)}"
    assert learns_messages(ReportOptions(model_uri=model, **options), trainer) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{{ x }}", True),
        ("", False),
        (None, False),
        ([{"name": "default", "template": "x"}], True),
        ([{"name": "tool_use", "template": "x"}], False),
        ({}, False),
    ],
)
def test_template_for_all_chats_is_found_in_the_configuration(tmp_path: Path, given: Any, expected: bool) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": given}), "utf-8")
    assert learns_messages(ReportOptions(model_uri=f"file://{tmp_path}"), "sft") is expected


def test_questions_stay_texts_if_the_model_cannot_be_seen(
    tmp_path: Path, hub: HubServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert not learns_messages(ReportOptions(), "sft")
    assert not learns_messages(ReportOptions(model_uri="hf://org/absent"), "sft")
    assert "event=chat_template_unknown model=hf://org/absent" in caplog.text
    assert {*hub.downloads()} == set()


def test_template_is_found_without_the_tokenizer(tmp_path: Path, hub: HubServer) -> None:
    hub.repository("models/org/model").push({"chat_template.jinja": b"x", "tokenizer.json": b"{}", "config.json": b"{}"})
    assert learns_messages(ReportOptions(model_uri="hf://org/model"), "sft")
    assert {*hub.downloads()} == {"chat_template.jinja", "config.json"}


def test_report_shows_questions_as_the_model_sees_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainwright.initializers.data_report.report")  # which the command line sets to ERROR
    chat = f"file://{write_tokenizer(tmp_path / 'chat', template=CHATML, **CHATML_TOKENS, eos_token='<|im_end|>')}"
    plain = f"file://{write_tokenizer(tmp_path / 'plain', template=None)}"
    rows = [{"question": "q", "answer": "a", "system_prompt": "s"}] * 3
    report = reported(tmp_path / "a", rows, model_uri=chat, max_length=90, as_messages=True)
    assert report.sample == "".join(
        f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in (("system", "s"), ("user", "q"), ("assistant", "a"))
    )
    assert report.findings == ()
    assert "messages, which the model's chat template renders" in markdown_page(report)
    assert f"event=data_sample layout=question-answer questions=messages seen_by_model=True text={report.sample!r}" in caplog.text
    report = reported(tmp_path / "b", rows, model_uri=plain)
    assert report.sample == f"<s>s\n\nq\n\na{EOS}"
    assert "with headings (the model has no chat template)" in html_page(report)
    assert "(the trainer renders no chat template)" in html_page(reported(tmp_path / "c", rows, model_uri=chat))
    assert "chat template is not known: no model was named" in html_page(reported(tmp_path / "d", rows))


def test_report_says_that_answers_are_learned_alone(tmp_path: Path) -> None:
    weighted = [{"messages": [USER, {**ANSWER, "weight": 0}, USER, ANSWER]}]
    assert "some messages have the weight 0: each other answer is a row" in html_page(reported(tmp_path / "a", weighted))
    assert "weight 0" not in html_page(reported(tmp_path / "b", [{"messages": [USER, ANSWER]}]))


def test_sample_shows_the_end_of_a_long_row(tmp_path: Path, model: str) -> None:
    sample = reported(tmp_path, [text(5000)], model_uri=model).sample
    assert (len(sample), sample[:4], sample[-5:]) == (2000, "<s>a", f"a{EOS}")


def test_held_out_rows_with_the_same_words_are_trained_on(tmp_path: Path) -> None:
    train = [{"prompt": "Où est  le bateau?", "completion": "Ici."}, {"prompt": "b", "completion": "c\nd"}]
    held_out = [
        {"prompt": "OÙ est le\nbateau?", "completion": "ici."},
        {"prompt": "B", "completion": "c d"},
        {"prompt": "x", "completion": "y"},
    ]
    report = reported(tmp_path, train, held_out)
    assert report.overlap == 2
    assert [(found.severity, found.name) for found in report.findings] == [("not checked", "answers"), ("warning", "overlap")]
    assert "2 of 3 held-out rows are trained on" in report.findings[1].text
    assert "drop_overlap among the settings of the data leaves them out" in report.findings[1].text


def test_receipt_gets_figures_and_no_rows(tmp_path: Path, model: str) -> None:
    details = reported(tmp_path, [text(3)], model_uri=model, max_length=2).as_details()
    assert details["splits"]["train"]["tokens"]["cut"] == 1
    assert details["model"] == model
    assert "sample" not in details
    assert json.loads(json.dumps(details)) == details


def test_template_that_is_not_valid_matters_for_messages_alone(tmp_path: Path) -> None:
    model = f"file://{write_tokenizer(tmp_path / 'model', template='{% for %}')}"
    with pytest.raises(DataUnfit, match="the chat template is not valid"):
        reported(tmp_path / "a", [{"messages": [USER, ANSWER]}], model_uri=model)
    assert reported(tmp_path / "b", [text(3)], model_uri=model).splits["train"].tokens == token_figures([3], ended=1)


def test_templates_run_in_a_process_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen: list[dict[str, str]] = []
    real = model_tokenizer.run_in_group

    def watched(*command: Any, **options: Any) -> int:
        seen.append(options["environment"])
        return real(*command, **options)

    monkeypatch.setattr(model_tokenizer, "run_in_group", watched)
    model = f"file://{write_tokenizer(tmp_path / 'model', template='{{ messages[0].content }} é')}"
    report = reported(tmp_path, [{"messages": [USER, ANSWER]}], [{"messages": [USER, ANSWER]}] * 2, model_uri=model)
    assert report.sample == "q é"
    assert report.splits["test"].tokens == token_figures([4, 4])
    assert "hf_secret" not in str(seen)
    assert len(seen) == 1


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
COMPARISON = (
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a] * 2 %}{% set ns.b = [ns.b] * 2 %}{% endfor %}"
    "{{ ns.a == ns.b }}"
)
"""2**60 comparisons in one operation, which no signal handler of Python interrupts."""


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (LOOP, "train.jsonl row 1: the chat template has not ended: the row takes more than 2 s"),
        ("{{ messages[0].content * 10 ** 11 }}", "train.jsonl row 1: the chat template has not ended: MemoryError"),
        (COMPARISON, "the chat template takes more than 4 s for a row"),
    ],
)
def test_templates_have_limits_in_a_process(tmp_path: Path, template: str, reason: str) -> None:
    model = f"file://{write_tokenizer(tmp_path / 'model', template=template)}"
    report = reported(tmp_path / "a", [{"messages": [USER, ANSWER]}], model_uri=model)
    assert report.tokens_missing.startswith(reason)


def test_sample_of_a_tokenizer_that_expands_in_a_process_is_cut(tmp_path: Path) -> None:
    model = write_tokenizer(tmp_path / "model")
    file = model / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["decoder"] = {"type": "Replace", "pattern": {"String": "a"}, "content": "x" * 100_000}
    file.write_text(json.dumps(tokenizer))
    report = reported(tmp_path, [text(100)], model_uri=f"file://{model}")
    assert report.tokens_missing == ""
    assert len(report.sample) < 2100


def test_tokenizer_that_is_too_large_is_not_fetched(tmp_path: Path) -> None:
    model = write_tokenizer(tmp_path / "model")
    os.truncate(model / "tokenizer.json", 2 * 1024**3)  # sparse
    report = reported(tmp_path, [text(3)], model_uri=f"file://{model}")
    assert report.tokens_missing.startswith("the files of the tokenizer have 21474")


def test_count_in_a_process_has_a_time_limit(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_tokenizer, "MAX_SECONDS", 0.1)
    assert reported(tmp_path, [text(3)], model_uri=model).tokens_missing == "counting tokens took more than 0.1 s"


def test_crash_in_a_process_is_a_missing_tokenizer(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_tokenizer, "_PROGRAM", "trainwright.absent")
    report = reported(tmp_path, [text(3)], model_uri=model)
    assert re.fullmatch("counting tokens ended with 1: .*No module named trainwright.absent", report.tokens_missing)
