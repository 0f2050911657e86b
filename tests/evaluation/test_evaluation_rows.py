"""Reading rows to evaluate on: the four layouts, the folder or the file, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.evaluation.rows import InvalidInput, read_rows
from trainwright.evaluation.sample import choose_prompt

USER, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
MORE = {"role": "user", "content": "c"}


@pytest.mark.parametrize(
    ("row", "layout"),
    [
        ({"prompt": "a", "completion": "b"}, "prompt-completion"),
        ({"prompt": [USER], "completion": [ANSWER]}, "conversational-prompt-completion"),
        ({"messages": [USER, ANSWER]}, "messages"),
        ({"text": "a"}, "text"),
    ],
)
def test_the_layout_is_that_of_the_columns(tmp_path: Path, row: dict[str, Any], layout: str) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(json.dumps({**row, "more": 1}))
    rows = read_rows(data)
    assert (rows.layout, rows.rows, rows.held_out) == (layout, [row], True)


def test_a_folder_gives_its_held_out_rows_or_else_its_training_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has neither test\.jsonl nor train\.jsonl"):
        read_rows(tmp_path)
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{broken')
    rows = read_rows(tmp_path, max_rows=2)
    assert (len(rows.rows), rows.held_out, rows.path.name) == (2, False, "train.jsonl")
    (tmp_path / "test.jsonl").write_text('{"text": "a"}')
    assert read_rows(tmp_path).held_out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{data}: has no rows"),
        ("\n\n", "{data}: has no rows"),
        ('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n', '{data} line 2: has no column "completion"'),
        ('{"completion": "b"}', '{data} line 1: has no column "prompt"'),
        ('{"prompt": "a", "completion": 3}', '{data} line 1: column "completion" is not text'),
        ('{"prompt": [], "completion": []}', '{data} line 1: column "prompt" is not a list of messages'),
        ('{"prompt": [{"role": "user", "content": "a"}], "completion": "b"}', '{data} line 1: column "completion" is not a list'),
        ('{"messages": "a"}', '{data} line 1: column "messages" is not a list of messages'),
        ('{"messages": [{"role": "user"}]}', '{data} line 1: column "messages" has a message without "role" and "content"'),
        ('{"text": null}', '{data} line 1: column "text" is not text'),
        ('{"text": "a"}\n{"prompt": "a", "completion": "b"}', "{data} line 2: has the layout prompt-completion, the first row"),
        ('{"question": "a"}', '{data} line 1: has none of the columns "prompt" and "completion", "messages", "text"'),
        ('["prompt"]', "{data} line 1: is not a JSON object"),
        ("{prompt}", "{data} line 1: is not JSON: "),
        ("[" * 100_000, "{data} line 1: is not JSON: "),
    ],
)
def test_rows_that_cannot_be_evaluated_are_named(tmp_path: Path, text: str, message: str) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(text)
    with pytest.raises(InvalidInput) as raised:
        read_rows(data)
    assert str(raised.value).startswith(message.replace("{data}", str(data)))


def test_a_line_separator_inside_a_text_does_not_end_the_row(tmp_path: Path) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text('{"prompt": "a\u2028b", "completion": "c"}\n', encoding="utf-8")
    assert read_rows(data).rows == [{"prompt": "a\u2028b", "completion": "c"}]


@pytest.mark.parametrize(
    ("messages", "prompt", "expected"),
    [
        ([USER, ANSWER], "user: a", "b"),
        ([USER, ANSWER, MORE, {**ANSWER, "content": "d"}, MORE], "user: a\nassistant: b\nuser: c", "d"),
        ([USER], "user: a", None),
        ([ANSWER], "assistant: b", None),
        ([USER, {**ANSWER, "content": None}], "user: a", ""),
        ([{**USER, "content": [{"type": "text", "text": "x"}]}, ANSWER], "user: x", "b"),
    ],
)
def test_the_sample_asks_for_the_last_answer(tmp_path: Path, messages: Any, prompt: str, expected: str | None) -> None:
    data = tmp_path / "test.jsonl"
    data.write_text(json.dumps({"messages": messages}))
    chosen = choose_prompt(read_rows(data), 0, None)
    assert (chosen.text, chosen.expected) == (prompt, expected)
