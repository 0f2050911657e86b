"""The losses of compared answers, by hand; tests/checkpoints/test_preference_training.py compares them with those of TRL."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from trainwright.evaluation.encoding import Encoded
from trainwright.evaluation.figures import markdown_summary
from trainwright.evaluation.preferences import ACCURACY, BETA, Compared
from trainwright.evaluation.rows import LABEL, PREFERENCE, InvalidInput, RowSet, read_rows
from trainwright.evaluation.sample import choose_prompt

ANSWER = Encoded([1, 2, 3], 1)
USER, GOOD, BAD = ({"role": role, "content": text} for role, text in (("user", "u"), ("assistant", "g"), ("assistant", "b")))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_loss_of_preferences_is_of_the_difference_to_the_reference() -> None:
    compared = Compared(PREFERENCE, [ANSWER] * 6, [], 8)
    reference = [-9.0, -3.0, -2.0, -4.0, -5.0, -5.0]
    assert compared.figures(reference, reference) == {"loss": pytest.approx(math.log(2)), ACCURACY: 0.5}
    found = compared.figures(reference, [-7.0, -6.0, -4.0, -4.0, -5.0, -5.0])
    margins = [BETA * (2 + 3), BETA * (-2 - 0), 0.0]
    assert found == {"loss": pytest.approx(sum(-math.log(sigmoid(margin)) for margin in margins) / 3), ACCURACY: 0.5}


def test_loss_of_marked_answers_is_of_the_divergence_of_their_batch() -> None:
    compared = Compared(LABEL, [ANSWER] * 6, [True, False, True], 2)
    assert compared.figures([-1.0] * 6, [-1.0] * 6) == {"loss": 0.5}
    found = compared.figures([0.0] * 6, [2.0, 1.0, 3.0, 1.0, 0.0, -4.0])
    losses = [1 - sigmoid(BETA * (2 - 0.5)), 1 - sigmoid(BETA * (0.5 - 1)), 1 - sigmoid(BETA * 3)]  # less than none is none
    assert found == {"loss": pytest.approx(sum(losses) / 3)}


def test_extreme_answers_have_a_finite_loss() -> None:
    compared = Compared(PREFERENCE, [ANSWER] * 2, [], 8)
    assert compared.figures([0.0, 0.0], [-1e6, 1e6])["loss"] == pytest.approx(BETA * 2e6)
    assert compared.figures([0.0, 0.0], [1e6, -1e6]) == {"loss": 0.0, ACCURACY: 1.0}
    assert Compared(LABEL, [ANSWER] * 2, [True], 8).figures([0.0, 0.0], [-1e6, 0.0])["loss"] == pytest.approx(1.0)


def rows_of(tmp_path: Path, *rows: dict[str, Any]) -> RowSet:
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return read_rows(tmp_path)


@pytest.mark.parametrize(
    ("row", "layout", "kind", "read"),
    [
        (
            {"prompt": "p", "chosen": "g", "rejected": "b"},
            "prompt-completion",
            PREFERENCE,
            {"prompt": "p", "completion": "g", "rejected": "b"},
        ),
        (
            {"chosen": "p: g", "rejected": "p: b"},
            "prompt-completion",
            PREFERENCE,
            {"prompt": "p:", "completion": " g", "rejected": " b"},
        ),
        (
            {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
            "conversational-prompt-completion",
            PREFERENCE,
            {"prompt": [USER], "completion": [GOOD], "rejected": [BAD]},
        ),
        (
            {"prompt": "p", "completion": "c", "label": False},
            "prompt-completion",
            LABEL,
            {"prompt": "p", "completion": "c", "label": False},
        ),
    ],
)
def test_compared_rows_are_never_taken_for_examples(
    tmp_path: Path, row: dict[str, Any], layout: str, kind: str, read: dict[str, Any]
) -> None:
    found = rows_of(tmp_path, row)
    assert (found.layout, found.kind, found.rows) == (layout, kind, [read])
    prompt = choose_prompt(found, 0, None)
    assert prompt.expected == (None if row.get("label") is False else {"prompt-completion": read["completion"]}.get(layout, "g"))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"prompt": "p", "chosen": "g"}], 'has no column "rejected"'),
        ([{"prompt": "p", "chosen": 1, "rejected": "b"}], 'column "chosen" is neither text nor a list of messages'),
        (
            [{"prompt": "p", "completion": "c"}, {"prompt": "p", "completion": "c", "label": True}],
            "line 2: has the layout prompt-completion label, the first row has prompt-completion",
        ),
        ([{"prompt": "p", "chosen": "g", "rejected": [BAD]}], 'column "rejected" is not text'),
    ],
)
def test_rows_that_cannot_be_compared_are_named(tmp_path: Path, rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        rows_of(tmp_path, *rows)


def test_summary_says_what_the_loss_is_of() -> None:
    figures = {"before": {"loss": 0.7, ACCURACY: 0.5}, "after": {"loss": 0.4, ACCURACY: 0.9}}
    summary = markdown_summary({**figures, "held_out": True, "loss_of": "DPO, beta 0.1"})
    assert "| held-out loss (DPO, beta 0\\.1) | 0.7 | 0.4 | -42.9 % |" in summary
    assert "preference\\_accuracy | 0.5 | 0.9 |" in summary
