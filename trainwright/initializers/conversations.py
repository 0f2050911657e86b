"""Reads conversations of any common form as the lists of messages that chat templates take.

Public datasets have OpenAI's messages (`role`, `content`) or those of ShareGPT (`from`, `value`, with other roles). Tools are
the calls of a message, and the columns beside it that chat templates read: TRL reads `tools` as a list or its JSON text,
`chat_template_kwargs` as an object. Objects with other keys in every row need care: see `features`.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.rows import parse_json

Row = dict[str, Any]

_ROLE_KEYS, _CONTENT_KEYS = ("role", "from"), ("content", "value")
_WEIGHT = "weight"
"""OpenAI's mark of the messages to learn: 1, or 0 for those that are context only."""
_PYTHON = re.compile(r"\[?\s*\{\s*'(?:role|content|from|value|weight|messages|conversations|conversation)'\s*:")
_MAX_PYTHON = 1024 * 1024
"""Characters that are read as Python, which takes a hundred times the memory."""
NOT_TEXT = frozenset({"image", "images", "audio", "audios", "video", "videos"})
"""Columns, and fields of messages, that a text model does not see."""
_ROLES = {
    **dict.fromkeys(("human",), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bot", "bing", "bard", "model", "function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("observation", "function_response", "tool_response", "function"), "tool"),
}
"""Roles of ShareGPT and its relatives, and OpenAI's earlier one. ShareGPT's function call is a text that the assistant writes."""
_KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
_INNER_COLUMNS = ("messages", "conversations", "conversation", "items")
_TURN = {"input", "output"}
_SYSTEM = "system"
_MAX_WRAPPERS = 3
"""Objects and lists around a list of messages."""
TOOL_CALLS = "tool_calls"
_FUNCTION_CALL = "function_call"
CALL_FIELDS = (TOOL_CALLS, _FUNCTION_CALL)
"""Of a message. The latter is OpenAI's earlier field, for one call."""
TOOLS, TEMPLATE_KWARGS = "tools", "chat_template_kwargs"
TEMPLATE_COLUMNS: dict[str, Any] = {TOOLS: "null", TEMPLATE_KWARGS: {}}
"""The columns beside a conversation that TRL reads, with the value that stands for none: of the type that all rows have."""


def read_conversation(value: Any, column: str, *, has_weights: bool = False) -> list[Row]:
    """Return the messages in a value of the column, each with the texts `role` and `content`; with weights, also `weight` if it is 0.

    Messages may have `from` and `value` instead, and roles such as `human` and `gpt`. The list may be inside an object, under
    `messages` or the like, or alone in another list, be JSON text, as in CSV, or consist of turns with `input` and `output`, as in
    Capybara. Other fields of messages with `role` and `content` are kept, tool calls in the form that `read_tool_calls` returns; a
    message that has them may have no content. Raises InitializerError.
    """
    messages = _from_turns(_unwrapped(from_json_text(value)))
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        as_json = "; a text must be the JSON of one, as json.dumps writes it" if isinstance(value, str) else ""
        raise InitializerError(f"column {column!r} is not a list of messages with role and content, or from and value{as_json}")
    if not messages:
        raise InitializerError(f"column {column!r} has no message; expected at least one with role and content")
    return [_message(message, column, number, has_weights) for number, message in enumerate(messages, 1)]


def has_weights(row: Row) -> bool:
    """Whether a message of a mapped row has the weight 0."""
    return any(_WEIGHT in message for message in row.get("messages", ()))


def answer_rows(row: Row, where: str) -> list[Row]:
    """Return a row with prompt and completion for each answer of a conversation to learn, whose weight is 1 or missing.

    The prompt has all messages before the answer. Raises InitializerError for an answer without one.
    """
    messages = row["messages"]
    beside = {column: value for column, value in row.items() if column != "messages"}
    plain = [{name: value for name, value in message.items() if name != _WEIGHT} for message in messages]
    learned = [at for at, message in enumerate(messages) if message["role"] == "assistant" and _WEIGHT not in message]
    if 0 in learned:
        raise InitializerError(
            f"{where}: the first message is an answer to learn, but nothing comes before it: give it the weight 0"
        )
    found = [{"prompt": plain[:at], "completion": [plain[at]], **beside} for at in learned]
    return [each for each in found if not is_blank(each["completion"])]


def from_python_text(value: Any, column: str) -> Any:
    """Return the conversation that a text is the Python notation of, as pandas writes it to CSV; any other value as it is.

    Raises InitializerError for a text that begins so and cannot be read: it is not learned as a text.
    """
    if not isinstance(value, str) or not _PYTHON.match(value.lstrip()):
        return value
    try:
        if len(value) > _MAX_PYTHON:
            raise ValueError(f"it has more than {_MAX_PYTHON:,} characters")
        parsed = parse_json(json.dumps(ast.literal_eval(value.strip())).encode())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        if not any(f"'{name}':" in value for name in _ROLE_KEYS):  # a text that only begins so, such as code
            return value
        raise InitializerError(
            f"column {column!r} has messages in Python's notation, which cannot be read (more than texts, numbers and lists, or over "
            f"{_MAX_PYTHON:,} characters): write them as JSON, with json.dumps, or as JSON Lines or Parquet"
        ) from error
    messages = _unwrapped(parsed)
    return parsed if isinstance(messages, list) and messages and all(map(_is_message, messages)) else value


def from_json_text(value: Any) -> Any:
    """Return the list or object that a text is the JSON of, as in CSV and Parquet; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[{", '{"')):
        return value
    try:
        return parse_json(value.encode())
    except (ValueError, RecursionError):  # a text that only begins so
        return value


def from_text_of_messages(value: Any) -> Any:
    """Return the list of messages that a text is the JSON, or Python's notation, of; any other value as it is: it may be an answer."""
    try:
        parsed = from_python_text(from_json_text(value), "")
    except InitializerError:  # code is an answer, too
        return value
    return parsed if isinstance(parsed, list) and parsed and all(map(_is_message, parsed)) else value


def with_system(messages: list[Row], system: str) -> list[Row]:
    """Return the messages after a system message with the text `system`, unless it is empty or they have one themselves."""
    if not system or messages[0]["role"] == "system":  # the conversation's own message counts
        return messages
    return [{"role": "system", "content": system}, *messages]


def is_blank(messages: list[Row]) -> bool:
    """Whether no message has any text or calls a tool."""
    return not any(message["content"].strip() or message.get(TOOL_CALLS) for message in messages)


def common_beginning(first: list[Row], second: list[Row]) -> int:
    """Return the number of messages with which both conversations begin."""
    same = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        same += 1
    return same


def _unwrapped(value: Any) -> Any:
    for _ in range(_MAX_WRAPPERS):
        if isinstance(value, dict):
            inner = [value[name] for name in _INNER_COLUMNS if isinstance(value.get(name), list)]
            if len(inner) != 1:  # several lists: it is not certain which is the conversation
                return value
            system = value.get(_SYSTEM)
            value = [{"role": _SYSTEM, "content": system}, *inner[0]] if system else inner[0]
        elif (
            isinstance(value, list)
            and len(value) == 1
            and isinstance(value[0], list | dict)
            and not (_is_message(value[0]) or _is_turn(value[0]))
        ):
            value = value[0]
        else:
            break
    return value


def _from_turns(value: Any) -> Any:
    """Return the messages of turns with `input` and `output`, and perhaps `system`; any other value as it is."""
    if not isinstance(value, list) or not all(map(_is_turn, value)):
        return value
    if others := sorted({name for turn in value for name in turn.keys() - _TURN if turn[name] is not None} - {_SYSTEM}):
        raise InitializerError(f"a turn has {others[0]!r} beside input and output, which would be lost")
    roles = {_SYSTEM: "system", "input": "user", "output": "assistant"}
    return [
        {"role": role, "content": turn[field]}
        for turn in value
        for field, role in roles.items()
        if field != _SYSTEM or turn.get(_SYSTEM)
    ]


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= _TURN


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or _key(value, _ROLE_KEYS) is None:  # without a role it may be any object
        return False
    return _key(value, _CONTENT_KEYS) is not None or ("role" in value and has_tool_calls(value))


def _key(message: Row, names: tuple[str, str]) -> str | None:
    return next((name for name in names if name in message), None)


def _message(message: Row, column: str, number: int, has_weights: bool) -> Row:
    weight = message.get(_WEIGHT)
    if weight not in ((None, 0, 1) if has_weights else (None, 1)):
        expected = "0 or 1" if has_weights else "1; only in whole conversations, 0 leaves out an answer"
        raise InitializerError(f"column {column!r}: message {number} has the weight {str(weight)[:40]}; expected {expected}")
    return {**_unweighted(message, column, number), **({_WEIGHT: 0} if weight == 0 else {})}


def _unweighted(message: Row, column: str, number: int) -> Row:
    if seen := sorted(name for name in message.keys() & NOT_TEXT if message[name]):
        raise InitializerError(f"column {column!r}: message {number} has {seen[0]!r}; only texts are learned")
    if "role" in message and ("content" in message or has_tool_calls(message)):
        return _standard_message(message, column, number)
    role = _role(_text(message, "role" if "role" in message else "from", column, number).strip().lower())
    if role not in _KNOWN_ROLES:
        known = ", ".join((*_KNOWN_ROLES, *_ROLES))
        raise InitializerError(f"column {column!r}: message {number} is from {role[:40]!r}; expected one of {known}")
    return {"role": role, "content": _content(message, "content" if "content" in message else "value", column, number)}


def _role(role: str) -> str:
    """Return the role of a known name, whatever its case; another, which some template may know, as it is."""
    name = role.strip().lower()
    return name if name in _KNOWN_ROLES else _ROLES.get(name, role)


def _standard_message(message: Row, column: str, number: int) -> Row:
    """Return a message of OpenAI's form. Fields that are null are left out: in Parquet, every message has all fields of any."""
    role = _text(message, "role", column, number)
    try:
        calls = read_tool_calls(message)
    except InitializerError as error:
        raise InitializerError(f"column {column!r}: message {number}: {error}") from error
    content = "" if calls and message.get("content") is None else _content(message, "content", column, number)
    others = {name: value for name, value in message.items() if value is not None and name not in (*CALL_FIELDS, _WEIGHT)}
    return {**others, "role": _role(role), "content": content, **({TOOL_CALLS: calls} if calls else {})}


def _content(message: Row, key: str, column: str, number: int) -> str:
    content = _joined(message[key])
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if kinds := [str(part.get("type"))[:40] for part in parts if part.get("type", "text") != "text"]:  # such as images
        raise InitializerError(f"column {column!r}: message {number} has a part of type {kinds[0]!r}; only texts are learned")
    return content if isinstance(content, str) else _text(message, key, column, number)


def _joined(content: Any) -> Any:
    """Join the parts of a content that consists only of texts, as in `[{"type": "text", "text": "..."}]`."""
    is_text = isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str) for part in content
    )
    return "".join(part["text"] for part in content) if is_text and content else content


def _text(message: Row, key: str, column: str, number: int) -> str:
    value = message[key]
    if not isinstance(value, str):
        kind = "empty" if value is None else type(value).__name__
        raise InitializerError(f"column {column!r}: {key} of message {number} is {kind}, expected text")
    return value


def has_tool_calls(message: Row) -> bool:
    """Whether a message calls a tool."""
    return any(message.get(field) for field in CALL_FIELDS)


def read_tool_calls(message: Row) -> list[Row]:
    """Return the tool calls of a message, whose arguments are objects even if they were JSON text, as in OpenAI's answers.

    Chat templates write arguments as JSON: a text would be quoted once more. Raises InitializerError.
    """
    calls = message.get(TOOL_CALLS)
    if not calls and (call := message.get(_FUNCTION_CALL)):
        calls = [{"type": "function", "function": call}]
    calls = _parsed(calls, TOOL_CALLS) or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) and _is_call(call) for call in calls):
        raise InitializerError(f"{TOOL_CALLS} is not a list of calls, each with a function that has a name")
    return [_with_arguments(call) for call in calls]


def read_template_columns(row: Row) -> Row:
    """Return the columns for chat templates that a row has: `tools` as JSON text, `chat_template_kwargs` as an object.

    Text keeps its type whatever the tools of other rows are. Raises InitializerError.
    """
    found: Row = {}
    if tools := _parsed(row.get(TOOLS), TOOLS):
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise InitializerError(f"column {TOOLS!r} is not a list of objects, nor its JSON text")
        found[TOOLS] = json.dumps(tools, ensure_ascii=False)
    if settings := _parsed(row.get(TEMPLATE_KWARGS), TEMPLATE_KWARGS):
        if not isinstance(settings, dict):
            raise InitializerError(f"column {TEMPLATE_KWARGS!r} is not an object")
        found[TEMPLATE_KWARGS] = settings
    return found


def _is_call(call: Row) -> bool:
    return isinstance(call.get("function", call), dict) and isinstance(call.get("function", call).get("name"), str)


def _with_arguments(call: Row) -> Row:
    if "function" in call:  # the arguments are one level deeper
        return {**call, "function": _with_arguments(call["function"])}
    arguments = call.get("arguments")
    if not isinstance(arguments, str):  # an object already
        return call
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):  # not JSON: kept as text
        return call
    return {**call, "arguments": parsed} if isinstance(parsed, dict) else call


def _parsed(value: Any, name: str) -> Any:
    if not isinstance(value, str) or not value.strip():
        return value or None
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InitializerError(f"{name} is text, but not JSON: {error}") from error
