"""Tool calls and the columns for chat templates: every common form of them becomes the one that templates take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.initializers import DatasetOptions, InitializerError, Receipt, initialize_dataset
from trainwright.initializers.columns import RowMapper
from trainwright.initializers.layouts import is_empty

Row = dict[str, Any]
USER, RESULT = {"role": "user", "content": "How high?"}, {"role": "tool", "name": "tide", "content": "1.4 m"}
ANSWER = {"role": "assistant", "content": "1.4 metres."}
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {"pier": {}}}}}]
CALLS = [{"type": "function", "function": {"name": "tide", "arguments": {"pier": 6}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": CALLS}


def mapped(row: Row) -> Row:
    return RowMapper().map_row(row, "row")


def prepare(rows: list[Row], folder: Path) -> Receipt:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return initialize_dataset(f"file://{folder}/rows.jsonl", folder / "out", DatasetOptions(test_fraction=0))


def read(folder: Path, name: str = "train.jsonl") -> list[Row]:
    return [json.loads(line) for line in (folder / "out" / name).read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "message",
    [
        CALL,
        {**CALL, "content": None},
        {"role": "assistant", "tool_calls": CALLS},
        {"role": "assistant", "content": [], "tool_calls": CALLS, "function_call": None} | {"content": None, "name": None},
        {"role": "assistant", "content": None, "tool_calls": json.dumps(CALLS)},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "tide", "arguments": '{"pier": 6}'}}],
        },
        {"role": "assistant", "content": None, "function_call": {"name": "tide", "arguments": '{"pier": 6}'}},
    ],
)
def test_every_form_of_a_tool_call_becomes_that_of_chat_templates(message: Row) -> None:
    assert mapped({"messages": [USER, message]}) == {"messages": [USER, CALL]}


def test_tool_calls_without_function_and_unparsable_arguments_are_kept() -> None:
    calls = [
        {"name": "tide", "arguments": {"pier": 6}},
        {"type": "function", "function": {"name": "tide", "arguments": "pier 6"}},
    ]
    assert mapped({"messages": [USER, {**CALL, "tool_calls": calls}]})["messages"][1]["tool_calls"] == calls


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "assistant", "content": None}, "content of message 2 is empty, expected text"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "content of message 2 is empty, expected text"),
        ({**CALL, "tool_calls": "tide"}, "message 2: tool_calls is text, but not JSON"),
        ({**CALL, "tool_calls": [{"id": 1}]}, "message 2: tool_calls is not a list of calls"),
        ({**CALL, "tool_calls": {"name": "tide"}}, "message 2: tool_calls is not a list of calls"),
    ],
)
def test_messages_with_neither_text_nor_valid_calls_are_refused(message: Row, problem: str) -> None:
    with pytest.raises(InitializerError, match=problem):
        mapped({"messages": [USER, message]})


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"messages": [USER, ANSWER]}, {"messages"}),
        ({"prompt": [USER], "completion": [CALL]}, {"prompt", "completion"}),
        ({"question": [USER], "answer": [CALL]}, {"prompt", "completion"}),
        ({"prompt": [USER], "chosen": [CALL], "rejected": [ANSWER]}, {"prompt", "chosen", "rejected"}),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, {"messages"}),
    ],
)
@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)])
def test_columns_for_chat_templates_are_kept_in_every_layout_of_messages(row: Row, columns: set[str], tools: Any) -> None:
    mapper = RowMapper()
    found = mapper.map_row({**row, "tools": tools, "chat_template_kwargs": {"enable_thinking": False}}, "row")
    assert found.keys() == columns | {"tools", "chat_template_kwargs"}
    assert json.loads(found["tools"]) == TOOLS
    assert found["chat_template_kwargs"] == {"enable_thinking": False}
    assert not mapper.dropped
    assert not is_empty(found)


def test_columns_for_chat_templates_beside_text_are_named_as_dropped() -> None:
    mapper = RowMapper()
    assert mapper.map_row({"prompt": "p", "completion": "c", "tools": TOOLS}, "row") == {"prompt": "p", "completion": "c"}
    assert mapper.dropped == ["tools"]


def test_columns_for_chat_templates_stay_beside_mapped_ones() -> None:
    mapper = RowMapper("", {"messages": "dialog"})
    assert mapper.map_row({"dialog": [USER, ANSWER], "tools": TOOLS}, "row").keys() == {"messages", "tools"}


@pytest.mark.parametrize(
    ("beside", "problem"),
    [
        ({"tools": "tide"}, "tools is text, but not JSON"),
        ({"tools": {"name": "tide"}}, "column 'tools' is not a list of objects"),
        ({"tools": ["tide"]}, "column 'tools' is not a list of objects"),
        ({"chat_template_kwargs": [1]}, "column 'chat_template_kwargs' is not an object"),
    ],
)
def test_columns_that_trl_could_not_read_are_refused(beside: Row, problem: str) -> None:
    with pytest.raises(InitializerError, match=problem):
        mapped({"messages": [USER, ANSWER], **beside})


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, CALL, RESULT, ANSWER], "tools": TOOLS},
        {"messages": [USER, {**CALL, "content": None}, RESULT, ANSWER], "tools": TOOLS},
        {"prompt": [USER], "completion": [CALL], "tools": json.dumps(TOOLS)},
        {
            "conversations": [
                {"from": "human", "value": "How high?"},
                {"from": "function_call", "value": '{"name": "tide", "arguments": {"pier": 6}}'},
                {"from": "observation", "value": "1.4 m"},
                {"from": "gpt", "value": "1.4 metres."},
            ],
            "system": "You help.",
            "tools": json.dumps(TOOLS),
        },
    ],
)
def test_rows_that_call_tools_are_prepared_with_their_tools(row: Row, tmp_path: Path) -> None:
    receipt = prepare([row] * 3, tmp_path)
    assert receipt.details["train_rows"] == 3
    assert receipt.details["empty_rows"] == 0
    assert "dropped_columns" not in receipt.details
    assert [json.loads(found["tools"]) for found in read(tmp_path)] == [TOOLS] * 3


def test_all_rows_of_a_file_get_the_same_columns(tmp_path: Path) -> None:
    plain, with_tools = {"messages": [USER, ANSWER]}, {"messages": [USER, CALL, RESULT, ANSWER], "tools": TOOLS}
    with_settings = {"messages": [USER, ANSWER], "tools": [], "chat_template_kwargs": {"enable_thinking": True}}
    prepare([plain, with_tools, with_settings], tmp_path)
    rows = read(tmp_path)
    assert [json.loads(row["tools"]) for row in rows] == [None, TOOLS, None]
    assert [row["chat_template_kwargs"] for row in rows] == [{}, {}, {"enable_thinking": True}]


def test_rows_without_any_tools_have_no_columns_for_them(tmp_path: Path) -> None:
    prepare([{"messages": [USER, ANSWER], "tools": None, "chat_template_kwargs": {}}] * 2, tmp_path)
    assert [row.keys() for row in read(tmp_path)] == [{"messages"}] * 2
