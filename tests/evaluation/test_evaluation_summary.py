"""The Markdown summary: what it shows, what it leaves out, and that no text of a model breaks the page."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.evaluation.figures import markdown_summary

RESULT: dict[str, Any] = {
    "run": "llama_sft",
    "rows": 25,
    "held_out": True,
    "before": {"loss": 4.0, "perplexity": 54.6},
    "after": {"loss": 1.0, "perplexity": 2.718},
    "sample": {"prompt": "Who?\n", "expected": "Søren.", "before": "```", "after": "Søren."},
    "checkpoint": "/workspace/evaluation/checkpoint",
    "checkpoint_uri": "s3://models/checkpoint-500",
    "checkpoint_digest": "sha256:abc",
    "dataset_digest": "sha256:def",
}


def test_the_whole_summary() -> None:
    assert markdown_summary(RESULT) == (
        "## Run llama\\_sft\n\n"
        "| | before | after | change |\n|---|---:|---:|---:|\n"
        "| held-out loss | 4 | 1 | -75.0 % |\n| perplexity | 54.6 | 2.718 | |\n\n"
        "| | |\n|---|---|\n| rows | `25` |\n| checkpoint | `s3://models/checkpoint-500` |\n"
        "| checkpoint digest | `sha256:abc` |\n| dataset digest | `sha256:def` |\n\n"
        "**Prompt**\n\n```text\nWho?\n```\n\n**Expected**\n\n```text\nSøren.\n```\n\n"
        "**Before**\n\n````text\n```\n````\n\n**After**\n\n```text\nSøren.\n```\n"
    )


def test_summary_marks_what_a_figure_is_worth() -> None:
    ends = {"count": 8, "before": {"ended": 0, "tokens": 384}, "after": {"ended": 7, "tokens": 96}}
    findings = [
        {"severity": "warning", "name": "never_stops", "text": "no row | ends"},
        {"severity": "note", "name": "overlap", "text": "unread"},
        {"severity": "bad", "name": "x", "text": "unread"},
        "unread",
    ]
    shown = markdown_summary(RESULT | {"trained_rows": 2, "samples": ends, "data_findings": findings})
    assert "| held-out loss (2 of 25 rows are also trained on) | 4 | 1 | -75.0 % |" in shown
    assert "| samples | 0 of 8 ended (48 tokens each) | 7 of 8 ended (12 tokens each) | |" in shown
    assert "**Dataset**\n\n- warning\\: no row \\| ends\n\n" in shown
    assert "unread" not in shown
    advice = f"{'long ' * 80}and what to do"
    assert "and what to do\n" in markdown_summary(RESULT | {"data_findings": [{**findings[0], "text": advice}]})
    assert "also trained on" not in markdown_summary(RESULT | {"trained_rows": 1})


def test_each_metric_of_a_task_has_a_line() -> None:
    before, after = {**RESULT["before"], "arc_easy/acc": 0.25}, {**RESULT["after"], "arc_easy/acc": 0.5}
    assert "| arc\\_easy/acc | 0.25 | 0.5 | |\n" in markdown_summary(RESULT | {"before": before, "after": after})


def test_training_rows_are_called_that() -> None:
    figures = {"training_loss": 1.0, "training_perplexity": 2.718, "training_rows/exact_match": 0.5}
    shown = markdown_summary(RESULT | {"held_out": False, "before": figures, "after": figures})
    assert "| training loss | 1 | 1 | +0.0 % |\n| training perplexity | 2.718 | 2.718 | |\n| training\\_rows/exact" in shown
    assert "held-out" not in shown


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"before": None}, "| held-out loss | n/a | 1 | n/a |"),
        ({"before": {"loss": 0.0}}, "| held-out loss | 0 | 1 | n/a |"),
        ({"before": None, "after": None}, "## Run llama\\_sft\n\n| | |"),
        ({"run": None}, "## Evaluation\n"),
    ],
)
def test_summary_omits_missing_values(change: dict[str, Any], shown: str) -> None:
    assert shown in markdown_summary(RESULT | change)
    assert markdown_summary({}) == "## Evaluation\n"


def test_long_texts_are_cut() -> None:
    summary = markdown_summary(RESULT | {"sample": {"after": "a" * 10_000}, "run": "r" * 10_000})
    assert len(summary) < 2000
    assert " …" in summary


@given(st.text(alphabet=st.sampled_from("`|\n\r<*_#- a~\\"), max_size=40))
def test_property_no_text_breaks_out_of_its_place(text: str) -> None:
    summary = markdown_summary({"run": f"x{text}", "checkpoint_uri": f"x{text}", "sample": {"after": text}, "rows": 1})
    heading, table, sample = summary.split("\n\n", 2)
    assert len(heading.splitlines()) == 1
    assert "<" not in heading.replace("\\<", "")
    rows = table.split("\n")
    assert len(rows) == 4
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3, 3, 3, 3]
    fence = re.match(r"\*\*After\*\*\n\n(`{3,})text\n", sample)
    assert fence is not None
    assert sample.count(fence[1]) == 2
