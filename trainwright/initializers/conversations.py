"""Reads conversations of any common form as the lists of messages that chat templates take.

Public datasets have OpenAI's messages (`role`, `content`) or those of ShareGPT (`from`, `value`, with roles of its own).
"""

from __future__ import annotations

from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.tool_calls import CALL_FIELDS, TOOL_CALLS, has_tool_calls, read_tool_calls

Row = dict[str, Any]

_ROLE_KEYS, _CONTENT_KEYS = ("role", "from"), ("content", "value")
_ROLES = {
    **dict.fromkeys(("human",), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bot", "bing", "bard", "model", "function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("observation", "function_response", "tool_response", "function"), "tool"),
}
"""Roles of ShareGPT and its relatives, and OpenAI's earlier one. ShareGPT's function call is a text that the assistant writes."""
_KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
_INNER_COLUMNS = ("messages", "conversations", "conversation", "items")
_MAX_WRAPPERS = 3
"""Objects and lists around a list of messages."""


def read_conversation(value: Any, column: str) -> list[Row]:
    """Return the messages in a value of the column, each with the texts `role` and `content`.

    Messages may have `from` and `value` instead, and roles such as `human` and `gpt`. The list may be inside an object, under
    `messages` or the like, or alone in another list. Other fields of messages with `role` and `content` are kept, tool calls in
    the form that `read_tool_calls` returns; a message that has them may have no content. Raises InitializerError.
    """
    messages = _unwrapped(value)
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        raise InitializerError(f"column {column!r} is not a list of messages with role and content, or from and value")
    if not messages:
        raise InitializerError(f"column {column!r} has no message; expected at least one with role and content")
    return [_message(message, column, number) for number, message in enumerate(messages, 1)]


def with_system(messages: list[Row], system: Any, column: str) -> list[Row]:
    """Return the messages after a system message with the text `system`, unless it is empty or they have one themselves."""
    if not system or messages[0]["role"] == "system":
        return messages
    if not isinstance(system, str):
        raise InitializerError(f"column {column!r} is {type(system).__name__}, expected text")
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
            if len(inner) != 1:
                return value
            value = inner[0]
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], list | dict) and not _is_message(value[0]):
            value = value[0]
        else:
            break
    return value


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or _key(value, _ROLE_KEYS) is None:
        return False
    return _key(value, _CONTENT_KEYS) is not None or ("role" in value and has_tool_calls(value))


def _key(message: Row, names: tuple[str, str]) -> str | None:
    return next((name for name in names if name in message), None)


def _message(message: Row, column: str, number: int) -> Row:
    if "role" in message and ("content" in message or has_tool_calls(message)):
        return _standard_message(message, column, number)
    role = _text(message, "role" if "role" in message else "from", column, number).strip().lower()
    role = _ROLES.get(role, role)
    if role not in _KNOWN_ROLES:
        known = ", ".join((*_KNOWN_ROLES, *_ROLES))
        raise InitializerError(f"column {column!r}: message {number} is from {role[:40]!r}; expected one of {known}")
    return {"role": role, "content": _content(message, "content" if "content" in message else "value", column, number)}


def _standard_message(message: Row, column: str, number: int) -> Row:
    """Return a message of OpenAI's form. Fields that are null are left out: in Parquet, every message has all fields of any."""
    role = _text(message, "role", column, number)
    try:
        calls = read_tool_calls(message)
    except InitializerError as error:
        raise InitializerError(f"column {column!r}: message {number}: {error}") from error
    content = "" if calls and message.get("content") is None else _content(message, "content", column, number)
    others = {name: value for name, value in message.items() if value is not None and name not in CALL_FIELDS}
    return {**others, "role": _ROLES.get(role, role), "content": content, **({TOOL_CALLS: calls} if calls else {})}


def _content(message: Row, key: str, column: str, number: int) -> str:
    content = _joined(message[key])
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
