"""Every common form of rows becomes one that TRL itself accepts; a form that could be two is never guessed."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.initializers import DatasetOptions, InitializerError, initialize_dataset
from trainwright.initializers.columns import RowMapper
from trainwright.initializers.conversations import from_python_text
from trainwright.initializers.layouts import LAYOUTS, is_empty

Row = dict[str, Any]


def says(role: str, content: str) -> Row:
    return {"role": role, "content": content}


def tells(sender: str, value: str) -> Row:
    return {"from": sender, "value": value}


ALPACA_PROMPT = "### Instruction:\ni\n\n### Response:\n"
CONTEXT_PROMPT = "### Instruction:\ni\n\n### Input:\nx\n\n### Response:\n"
USER, GOOD, BAD = says("user", "u"), says("assistant", "good"), says("assistant", "bad")
TALK = [says("system", "s"), says("user", "u"), says("assistant", "a")]
CASES: list[tuple[str, Row, Row]] = [
    ("question-answer", {"question": "q", "answer": "a", "id": 1}, {"prompt": "q\n\n", "completion": "a"}),
    (
        "question-response",
        {"system_prompt": "s", "question": "q \n", "response": "a"},
        {"prompt": "s\n\nq\n\n", "completion": "a"},
    ),
    ("prompt-completion", {"prompt": "q", "completion": "a", "system": "s"}, {"prompt": "q", "completion": "a"}),
    (
        "alpaca",
        {"instruction": "i", "output": "o", "system": "s"},
        {"prompt": f"s\n\n{ALPACA_PROMPT}", "completion": "o"},
    ),
    ("query-response", {"query": "q", "response": "a"}, {"prompt": "q\n\n", "completion": "a"}),
    ("prompt-response", {"prompt": "q", "response": "a"}, {"prompt": "q\n\n", "completion": "a"}),
    ("input-output", {"input": "q", "output": "a"}, {"prompt": "q\n\n", "completion": "a"}),
    ("input-output", {"input": [USER], "output": [GOOD]}, {"prompt": [USER], "completion": [GOOD]}),
    (
        "alpaca",
        {"instruction": "i", "input": "x", "output": "o", "text": "all of it"},
        {"prompt": CONTEXT_PROMPT, "completion": "o"},
    ),
    (
        "instruction-response",
        {"instruction": "i", "context": "x", "response": "o", "category": "qa"},
        {"prompt": CONTEXT_PROMPT, "completion": "o"},
    ),
    ("instruction-response", {"instruction": "i", "response": "o"}, {"prompt": ALPACA_PROMPT, "completion": "o"}),
    ("text", {"text": "t", "label": 0}, {"text": "t"}),
    (
        "conversations",
        {"conversations": [tells("system", "s"), tells("human", "u"), tells("gpt", "a")], "id": "x"},
        {"messages": TALK},
    ),
    ("conversations", {"conversations": TALK}, {"messages": TALK}),
    ("conversation", {"conversation": TALK, "model": "x"}, {"messages": TALK}),
    ("conversations", {"conversations": [tells("Human", "u"), tells("GPT", "a")], "system": "s"}, {"messages": TALK}),
    ("conversations", {"conversations": TALK, "system": "another"}, {"messages": TALK}),
    ("conversations", {"conversations": TALK[1:], "system": None}, {"messages": TALK[1:]}),
    (
        "conversations",
        {"conversations": [tells("human", "u"), tells("function_call", "{}"), tells("observation", "1"), tells("gpt", "a")]},
        {"messages": [USER, says("assistant", "{}"), says("tool", "1"), says("assistant", "a")]},
    ),
    ("conversations", {"conversations": [TALK]}, {"messages": TALK}),
    ("conversations", {"conversations": {"messages": TALK, "id": 1}}, {"messages": TALK}),
    ("conversations", {"conversations": [{"items": TALK}]}, {"messages": TALK}),
    ("messages", {"messages": [tells("human", "u"), tells("gpt", "good")]}, {"messages": [USER, GOOD]}),
    ("messages", {"messages": [says("human", "u"), says("gpt", "good")]}, {"messages": [USER, GOOD]}),
    (
        "messages",
        {"messages": [{**USER, "name": "n"}, GOOD], "prompt": "u", "prompt_id": 1},
        {"messages": [{**USER, "name": "n"}, GOOD]},
    ),
    (
        "messages",
        {"messages": [says("user", [{"type": "text", "text": "u"}]), GOOD]},  # type: ignore[arg-type]
        {"messages": [USER, GOOD]},
    ),
    *(
        ("kto", {"prompt": "p", "completion": "c", "label": label}, {"prompt": "p", "completion": "c", "label": is_good})
        for label, is_good in (
            *((True, True), (1, True), (1.0, True), ("True", True), (" true ", True), ("1", True)),
            *((False, False), (0, False), ("FALSE", False), ("0", False)),
        )
    ),
    (
        "kto",
        {"prompt": [USER], "completion": [GOOD], "label": True, "source": "x"},
        {"prompt": [USER], "completion": [GOOD], "label": True},
    ),
    (
        "preference",
        {"prompt": "p", "chosen": "good", "rejected": "bad", "score": 1},
        {"prompt": "p", "chosen": "good", "rejected": "bad"},
    ),
    ("preference", {"chosen": "p: good", "rejected": "p: bad"}, {"chosen": "p: good", "rejected": "p: bad"}),
    *(
        (
            "preference",
            {column: "p", "chosen": "good", "rejected": "bad"},
            {"prompt": "p\n\n", "chosen": "good", "rejected": "bad"},
        )
        for column in ("question", "query", "input")
    ),
    (
        "preference",
        {"question": "p", "system": "s", "chosen": "good", "rejected": "bad"},
        {"prompt": "s\n\np\n\n", "chosen": "good", "rejected": "bad"},
    ),
    (
        "preference",
        {"prompt": "p", "system_prompt": "s", "chosen": "good", "rejected": "bad"},
        {"prompt": "s\n\np", "chosen": "good", "rejected": "bad"},
    ),
    (
        "preference",
        {"question": "u", "system": "s", "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [says("system", "s"), USER], "chosen": [GOOD], "rejected": [BAD]},
    ),
    (
        "preference",
        {"instruction": "i", "input": "x", "chosen": "good", "rejected": "bad"},
        {"prompt": CONTEXT_PROMPT, "chosen": "good", "rejected": "bad"},
    ),
    (
        "preference",
        {"prompt": json.dumps([USER]), "chosen": json.dumps([GOOD]), "rejected": json.dumps([BAD])},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    ),
    ("conversation", {"conversation": [{"input": "u", "output": "good"}], "source": "x"}, {"messages": [USER, GOOD]}),
    ("messages", {"messages": json.dumps([USER, {**GOOD, "weight": 1}])}, {"messages": [USER, GOOD]}),
    ("messages", {"messages": [USER, GOOD], "system": "s"}, {"messages": [says("system", "s"), USER, GOOD]}),
    ("preference", {"chosen": [USER, GOOD], "rejected": [USER, BAD]}, {"chosen": [USER, GOOD], "rejected": [USER, BAD]}),
    (
        "preference",
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    ),
    (
        "preference",
        {"prompt": "u", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    ),
    ("preference", {"prompt": "u", "chosen": [GOOD], "rejected": [BAD]}, {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}),
    (
        "preference",
        {"chosen": [tells("human", "u"), tells("gpt", "good")], "rejected": [tells("human", "u"), tells("gpt", "bad")]},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
    ),
]


@pytest.mark.parametrize(("layout", "row", "mapped"), CASES)
def test_rows_of_every_layout_become_those_that_trl_reads(layout: str, row: Row, mapped: Row) -> None:
    mapper = RowMapper()
    found = mapper.map_row(deepcopy(row), "row 1")
    assert found == mapped
    assert type(found.get("label")) is type(mapped.get("label"))  # 1 == True
    assert mapper.layout == layout
    assert not is_empty(mapped)
    assert RowMapper(layout).map_row(row, "row 1") == mapped


AS_MESSAGES: list[tuple[Row, Row]] = [
    ({"question": "u", "answer": "good"}, {"prompt": [USER], "completion": [GOOD]}),
    ({"query": "u", "response": "good", "system": None}, {"prompt": [USER], "completion": [GOOD]}),
    ({"prompt": "u", "response": "good", "system_prompt": "s"}, {"prompt": [TALK[0], USER], "completion": [GOOD]}),
    ({"input": "u", "output": "good", "system": "s"}, {"prompt": [TALK[0], USER], "completion": [GOOD]}),
    ({"instruction": "u", "output": "good", "input": ""}, {"prompt": [USER], "completion": [GOOD]}),
    ({"instruction": "i", "context": "x", "response": "good"}, {"prompt": [says("user", "i\n\nx")], "completion": [GOOD]}),
    ({"prompt": "u", "completion": "good"}, {"prompt": "u", "completion": "good"}),
    ({"prompt": "u", "completion": "good", "label": True}, {"prompt": "u", "completion": "good", "label": True}),
    ({"prompt": "u", "chosen": "good", "rejected": "bad"}, {"prompt": "u", "chosen": "good", "rejected": "bad"}),
    (
        {"prompt": "u", "system": "s", "chosen": "good", "rejected": "bad"},
        {"prompt": [TALK[0], USER], "chosen": [GOOD], "rejected": [BAD]},
    ),
    ({"question": "u", "chosen": "good", "rejected": "bad"}, {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}),
    (
        {"instruction": "i", "input": "x", "chosen": "good", "rejected": "bad"},
        {"prompt": [says("user", "i\n\nx")], "chosen": [GOOD], "rejected": [BAD]},
    ),
    ({"chosen": "Human: u\nA: a", "rejected": "Human: u\nA: b"}, {"chosen": "Human: u\nA: a", "rejected": "Human: u\nA: b"}),
    ({"text": "t"}, {"text": "t"}),
]


@pytest.mark.parametrize(("row", "expected"), AS_MESSAGES)
def test_questions_become_messages_for_a_chat_template(row: Row, expected: Row) -> None:
    assert RowMapper(as_messages=True).map_row(row, "row 1") == expected


@pytest.mark.parametrize(
    ("row", "as_messages", "form"),
    [
        ({"question": "u", "answer": "a"}, True, "messages"),
        ({"question": "u", "answer": "a"}, False, "text"),
        ({"instruction": "u", "output": "a"}, False, "text"),
        ({"question": "u", "chosen": "a", "rejected": "b"}, True, "messages"),
        ({"prompt": "u", "completion": "a"}, True, ""),
        ({"question": [USER], "answer": [GOOD]}, True, ""),
        ({"messages": TALK}, True, ""),
    ],
)
def test_mapper_names_the_form_of_questions(row: Row, as_messages: bool, form: str) -> None:
    mapper = RowMapper(as_messages=as_messages)
    mapper.map_row(row, "row 1")
    assert mapper.questions == form


@pytest.mark.medium
@given(st.lists(st.builds(says, st.sampled_from(["user", "assistant"]), st.text()), min_size=1))
def test_messages_in_python_notation_are_read_as_written(messages: list[Row]) -> None:
    assert from_python_text(str(messages), "messages") == messages


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        ("prompt-completion", {"prompt": "How?", "completion": "{'role': user.role, 'x': 1}"}),
        ("question-answer", {"question": "How?", "answer": "[{'role': 'user', 'content': 'a'}]"}),
        ("alpaca", {"instruction": "How?", "output": "[{'role': 'user', 'content': 'a'}]"}),
        ("text", {"text": "{'value': x, 'from': y}"}),
        ("preference", {"prompt": "How?", "chosen": "{'role': user.role}", "rejected": "no"}),
    ],
)
def test_code_in_python_is_an_answer_like_any_other(layout: str, row: Row) -> None:
    mapper = RowMapper()
    mapped = mapper.map_row(row, "row 1")
    assert mapper.layout == layout
    assert all(
        text in mapped.values() for name, text in row.items() if name in ("completion", "answer", "output", "text", "chosen")
    )


def test_text_that_begins_with_much_white_space_is_read_at_once() -> None:
    began = time.process_time()
    assert from_python_text(" " * 2_000_000, "messages") == " " * 2_000_000
    assert time.process_time() - began < 2


@given(st.text(alphabet="[]{}'\":,() \n\\rolecntusx0#", max_size=60))
def test_text_in_python_notation_is_kept_or_refused(text: str) -> None:
    for given_text in (text, f"[{{'role': {text}"):
        with suppress(InitializerError):
            found = from_python_text(given_text, "messages")
            assert found == given_text or isinstance(found, list | dict)


@pytest.mark.medium
def test_trl_takes_prepared_rows_as_they_are() -> None:
    data_utils = pytest.importorskip("trl.data_utils")
    for layout, row, _ in CASES:
        mapped = RowMapper().map_row(deepcopy(row), "row 1")
        is_conversational = any(isinstance(value, list) for value in mapped.values())
        assert data_utils.is_conversational(mapped) == is_conversational, layout
        assert data_utils.maybe_convert_to_chatml(deepcopy(mapped)) == mapped
        extracted = data_utils.maybe_extract_prompt(mapped)
        if "prompt" in mapped or "chosen" not in mapped:
            assert extracted == mapped
        elif is_conversational:
            assert extracted == {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}
        else:
            assert extracted == {"prompt": "p:", "chosen": " good", "rejected": " bad"}


@pytest.mark.medium
@pytest.mark.parametrize(("layout", "row", "mapped"), [case for case in CASES if case[0] != "kto"][-8:])
def test_the_datasets_library_and_trl_read_prepared_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, row: Row, mapped: Row
) -> None:
    datasets = pytest.importorskip("datasets")
    data_utils = pytest.importorskip("trl.data_utils")
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    initialize_dataset(f"file://{tmp_path}/rows.jsonl", tmp_path / "out", DatasetOptions(test_fraction=0))
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"), split="train")
    assert loaded.map(data_utils.maybe_extract_prompt)[0]["chosen" if "chosen" in mapped else "messages"]
    assert loaded[0] == mapped


@pytest.mark.parametrize(
    ("row", "choices"),
    [
        ({"prompt": "p", "completion": "c", "messages": TALK}, ("prompt-completion", "messages")),
        ({"prompt": "p", "chosen": [GOOD], "rejected": [BAD], "messages": TALK}, ("messages", "preference")),
        ({"prompt": "p", "completion": "c", "response": "r"}, ("prompt-completion", "prompt-response")),
        ({"question": "q", "query": "q", "response": "r"}, ("question-response", "query-response")),
        ({"messages": TALK, "conversations": TALK}, ("messages", "conversations")),
        ({"prompt": "p", "completion": "c", "chosen": "x", "rejected": "y"}, ("prompt-completion", "preference")),
    ],
)
def test_columns_that_fit_several_layouts_are_an_error_that_says_how_to_choose(row: Row, choices: tuple[str, str]) -> None:
    with pytest.raises(InitializerError) as caught:
        RowMapper().map_row(row, "hf://o/n (rows.jsonl, row 1)")
    expected = " or ".join(f"layout={name}" for name in choices)
    assert f"hf://o/n (rows.jsonl, row 1) has the columns {', '.join(sorted(row))}, which fit" in str(caught.value)
    assert f"choose {expected}, or name them with columns" in str(caught.value)
    for name in choices:
        assert RowMapper(name).map_row(row, "row 1")


@pytest.mark.parametrize("label", ["good", 2, 0.5, None, -1, ""])
def test_label_that_is_no_verdict_is_never_guessed(label: Any) -> None:
    row = {"prompt": "p", "completion": "c", "label": label}
    with pytest.raises(
        InitializerError, match=r"in rows for KTO it is true for a good answer .* layout=prompt-completion leaves it"
    ):
        RowMapper().map_row(row, "row 1")
    assert RowMapper("prompt-completion").map_row(row, "row 1") == {"prompt": "p", "completion": "c"}


@pytest.mark.parametrize(("row", "empty"), [(("p", "", True), True), (("p", " ", False), False), (("", "", False), True)])
def test_empty_answer_may_be_a_bad_one(row: tuple[str, str, bool], empty: bool) -> None:
    assert is_empty(dict(zip(("prompt", "completion", "label"), row, strict=True))) is empty


def test_columns_are_taken_from_where_the_user_says() -> None:
    mapper = RowMapper(columns={"prompt": "frage", "completion": "antwort"})
    assert mapper.map_row({"frage": "f", "antwort": "a", "prompt": "ignored", "text": "t"}, "row 1") == {
        "prompt": "f",
        "completion": "a",
    }
    assert mapper.layout == "prompt-completion"
    alpaca = RowMapper(columns={"instruction": "aufgabe", "input": "text", "output": "antwort"})
    assert alpaca.map_row({"aufgabe": "i", "text": "x", "antwort": "o"}, "row 1") == {"prompt": CONTEXT_PROMPT, "completion": "o"}
    chat = RowMapper(columns={"messages": "dialog"})
    assert chat.map_row({"dialog": [tells("human", "u"), tells("gpt", "good")], "text": ""}, "row 1") == {
        "messages": [USER, GOOD]
    }
    pairs = RowMapper(columns={"prompt": "question", "chosen": "chosen", "rejected": "rejected"})
    row = {"system": "", "question": "q", "chosen": "good", "rejected": "bad"}
    assert pairs.map_row(row, "row 1") == {"prompt": "q", "chosen": "good", "rejected": "bad"}


@pytest.mark.parametrize(
    ("columns", "layout", "message"),
    [
        (
            {"prompt": "frag", "completion": "antwort"},
            "",
            "row 7: there is no column 'frag', which columns names for 'prompt'; the columns are antwort, frage, id; "
            "did you mean frage?",
        ),
        ({"prompt": "zzz"}, "", "there is no column 'zzz', which columns names for 'prompt'; the columns are antwort, frage, id"),
        ({"prompt": "frage"}, "", "row 7 has the columns prompt; expected completion, prompt or messages or"),
        ({"prompt": "frage"}, "prompt-completion", "row 7 has the columns prompt; expected completion, prompt"),
        ({"prompt": "id", "completion": "antwort"}, "", "row 7: column 'prompt' is int, expected text"),
        ({"frage": "prompt"}, "", "columns maps to 'frage', which no layout reads; known: answer, chat_template_kwargs, chosen"),
        ({}, "chatty", "unknown layout 'chatty'; known: prompt-completion, messages, alpaca, preference, kto, conversations"),
    ],
)
def test_a_mapping_that_does_not_fit_is_one_clear_error(columns: dict[str, str], layout: str, message: str) -> None:
    with pytest.raises(InitializerError) as caught:
        RowMapper(layout, columns).map_row({"frage": "f", "antwort": "a", "id": 1}, "row 7")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"conversations": [tells("alien", "x")]}, "message 1 is from 'alien'; expected one of system, developer, user"),
        ({"conversations": [tells("human", None)]}, "column 'conversations': value of message 1 is empty, expected text"),  # type: ignore[arg-type]
        ({"conversations": []}, "column 'conversations' has no message"),
        ({"conversations": "hello"}, "column 'conversations' is not a list of messages with role and content, or from and value"),
        ({"conversations": {"messages": TALK, "items": TALK}}, "column 'conversations' is not a list of messages"),
        ({"conversations": [[[[[TALK]]]]]}, "column 'conversations' is not a list of messages"),
        ({"conversations": TALK[1:], "system": 5}, "column 'system' is int, expected text"),
        ({"messages": [says("user", [{"type": "image"}])]}, "message 1 has a part of type 'image'; only texts are learned"),  # type: ignore[arg-type]
        ({"messages": [USER, {**GOOD, "weight": 0.5}]}, "message 2 has the weight 0.5; expected 0 or 1"),
        ({"messages": [USER, {**GOOD, "weight": "0"}]}, "message 2 has the weight 0; expected 0 or 1"),
        ({"chosen": [USER, {**GOOD, "weight": 0}], "rejected": [USER, BAD]}, "message 2 has the weight 0; expected 1;"),
        ({"question": "q", "answer": "a", "system": "s", "system_prompt": "t"}, "system and system_prompt differ"),
        ({"messages": "[{'role': 'user', 'content': open}]"}, "messages in Python's notation, which cannot be read"),
        ({"question": "[{'role': 'user' 'content': 'u'}]", "answer": "a"}, "column 'question' has messages in Python's notation"),
        ({"question": str([USER]), "answer": "a"}, "column 'question' is a list and column 'answer' is text"),
        ({"messages": f"[{{'role': 'user', 'content': '{'x' * 1024 * 1024}'}}]"}, "or over 1,048,576 characters"),
        *(
            (
                {"messages": TALK, column: "x.png"},
                f'{column!r} has what a text model does not see; to leave it out, name the columns to learn from: columns={{"',
            )
            for column in ("image", "images", "audio", "video")
        ),
        (
            {"question": "q", "chosen": "x", "rejected": "y", "image": "x.png"},
            'columns={"chosen": "chosen", "question": "question", "rejected": "rejected"}',
        ),
        (
            {"instruction": "i", "input": "x", "chosen": [GOOD], "rejected": [BAD]},
            "instruction and input are both part of the prompt",
        ),
        *(
            ({"instruction": "i", "input": value, "output": "o"}, f"column 'input' is {type(value).__name__}, expected text")
            for value in (math.nan, math.inf, 10**400)
        ),
        ({"question": "q", "query": "p", "chosen": "x", "rejected": "y"}, "question and query may each be the prompt"),
        ({"chosen": "The ship is at 4.", "rejected": "There is no ship."}, "no common beginning that is the prompt"),
        ({"chosen": "x", "rejected": "y"}, "no common beginning that is the prompt; name the prompt with columns="),
        ({"chosen": [GOOD], "rejected": [BAD]}, "must begin with the same messages, which are the prompt"),
        ({"chosen": [USER, GOOD], "rejected": [USER]}, "must begin with the same messages, which are the prompt"),
        ({"chosen": [USER, GOOD], "rejected": "y"}, "column 'rejected' is not a list of messages"),
        ({"prompt": None, "chosen": "x", "rejected": "y"}, "column 'prompt' is empty, expected text"),
    ],
)
def test_a_row_that_trl_would_misread_is_refused(row: Row, message: str) -> None:
    with pytest.raises(InitializerError) as caught:
        RowMapper().map_row(row, "row 3")
    assert str(caught.value).startswith("row 3: ")
    assert message in str(caught.value)


def test_rows_that_become_other_columns_than_the_first_are_refused() -> None:
    mapper = RowMapper()
    mapper.map_row({"prompt": "p", "chosen": "a", "rejected": "b"}, "row 1")
    with pytest.raises(
        InitializerError, match="row 2: this row has chosen, rejected, earlier rows have prompt, chosen, rejected"
    ):
        mapper.map_row({"chosen": "p: a", "rejected": "p: b"}, "row 2")


@pytest.mark.parametrize(
    ("row", "empty"),
    [
        ({"chosen": "p a", "rejected": "p a"}, True),
        ({"prompt": "p", "chosen": " ", "rejected": "b"}, True),
        ({"prompt": "p", "chosen": "a", "rejected": ""}, False),
        ({"chosen": "a", "rejected": ""}, True),
        ({"prompt": "p", "chosen": [USER, GOOD], "rejected": [USER, GOOD]}, True),
        ({"prompt": "", "completion": "c"}, False),
        ({"question": "q", "answer": "\n"}, True),
    ],
)
def test_rows_with_nothing_to_learn_from_are_empty(row: Row, empty: bool) -> None:
    assert is_empty(RowMapper().map_row(row, "row 1")) == empty


def test_the_documentation_lists_every_layout() -> None:
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text("utf-8")
    assert not [name for name in LAYOUTS if f"`{name}`" not in page]


JSON_TALK = json.dumps([USER])
LOST: list[tuple[Row, str]] = [
    ({"conversation": [{"input": "q", "output": "a", "output_with_loss": False}]}, "'output_with_loss' beside input and output"),
    ({"conversation": [{"input": "q", "output": "a", "instruction": "i"}]}, "'instruction' beside input and output"),
    ({"messages": [{**USER, "images": ["a.png"]}, GOOD]}, "message 1 has 'images'"),
    ({"conversations": [{**tells("human", "u"), "image": "a.png"}, tells("gpt", "a")]}, "message 1 has 'image'"),
    ({"prompt": "Translate", "input": "hello", "chosen": "a", "rejected": "b"}, "prompt and input may each be"),
    ({"system": "s", "chosen": "Human: q\nA: a", "rejected": "Human: q\nA: b"}, "a system text, but no column with the prompt"),
    ({"instruction": "i", "input": ["a", "b"], "output": "o"}, "column 'input' is list, expected text"),
    ({"instruction": "i", "input": {}, "chosen": "a", "rejected": "b"}, "column 'input' is dict, expected text"),
    ({"prompt": "p", "completion": "c", "label": []}, "column 'label' is '\\[\\]'"),
]


@pytest.mark.parametrize(("row", "words"), LOST)
def test_row_is_refused_if_a_part_of_it_would_be_lost(row: Row, words: str) -> None:
    with pytest.raises(InitializerError, match=words):
        RowMapper().map_row(row, "here")


KEPT: list[tuple[Row, Row]] = [
    ({"conversation": [{"system": "s", "input": "u", "output": "a"}]}, {"messages": TALK}),
    ({"messages": {"system": "s", "messages": TALK[1:]}}, {"messages": TALK}),
    ({"messages": [says("System", "s"), says("Human", "u"), says(" GPT", "a")]}, {"messages": TALK}),
    ({"messages": [says("critic", "u"), says("assistant", "a")]}, {"messages": [says("critic", "u"), says("assistant", "a")]}),
    (
        {"system": "s", "prompt": "u", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [says("system", "s"), USER], "chosen": [GOOD], "rejected": [BAD]},
    ),
    (
        {"system": "s", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"chosen": [says("system", "s"), USER, GOOD], "rejected": [says("system", "s"), USER, BAD]},
    ),
    ({"prompt": "p", "question": "p", "chosen": "a", "rejected": "b"}, {"prompt": "p", "chosen": "a", "rejected": "b"}),
    ({"prompt": JSON_TALK, "completion": json.dumps([GOOD])}, {"prompt": [USER], "completion": [GOOD]}),
    ({"prompt": JSON_TALK, "completion": "good"}, {"prompt": JSON_TALK, "completion": "good"}),
    ({"messages": str([says("user", 'it\'s "u"\n'), GOOD])}, {"messages": [says("user", 'it\'s "u"\n'), GOOD]}),
    ({"conversations": str({"messages": [tells("human", "u"), tells("gpt", "good")]})}, {"messages": [USER, GOOD]}),
    ({"prompt": str([USER]), "completion": str([GOOD])}, {"prompt": [USER], "completion": [GOOD]}),
    ({"prompt": "p", "completion": "[{'value': 1}]"}, {"prompt": "p", "completion": "[{'value': 1}]"}),
    ({"prompt": "p", "completion": "{'value': x}"}, {"prompt": "p", "completion": "{'value': x}"}),
    ({"question": str([USER]), "answer": str([GOOD]), "system": "s"}, {"prompt": [*TALK[:1], USER], "completion": [GOOD]}),
    (
        {"conversations": [tells("human", "u"), {**tells("gpt", "a"), "weight": 0}]},
        {"messages": [USER, {**says("assistant", "a"), "weight": 0}]},
    ),
    (
        {"prompt": "p", "chosen": '[{"name": "f"}]', "rejected": "no"},
        {"prompt": "p", "chosen": '[{"name": "f"}]', "rejected": "no"},
    ),
    ({"instruction": "i", "input": 0, "output": "o"}, {"prompt": CONTEXT_PROMPT.replace("x", "0"), "completion": "o"}),
]


@pytest.mark.parametrize(("row", "expected"), KEPT)
def test_every_part_of_a_row_is_learned_as_what_it_is(row: Row, expected: Row) -> None:
    assert RowMapper().map_row(row, "here") == expected
