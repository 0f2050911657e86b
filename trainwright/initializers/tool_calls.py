"""Reads what a conversation says of tools: the calls of a message, and the columns beside it that chat templates read.

TRL reads `tools` as a list or its JSON text, `chat_template_kwargs` as an object. Objects with other keys in every row need care:
see `features`.
"""

from __future__ import annotations

import json
from typing import Any

from trainwright.initializers.errors import InitializerError

Row = dict[str, Any]

TOOL_CALLS = "tool_calls"
_FUNCTION_CALL = "function_call"
CALL_FIELDS = (TOOL_CALLS, _FUNCTION_CALL)
"""Of a message. The latter is OpenAI's earlier field, for one call."""
TOOLS, TEMPLATE_KWARGS = "tools", "chat_template_kwargs"
TEMPLATE_COLUMNS: dict[str, Any] = {TOOLS: "null", TEMPLATE_KWARGS: {}}
"""The columns beside a conversation that TRL reads, with the value that stands for none: of the type that all rows have."""


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
    if "function" in call:
        return {**call, "function": _with_arguments(call["function"])}
    arguments = call.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return call
    return {**call, "arguments": parsed} if isinstance(parsed, dict) else call


def _parsed(value: Any, name: str) -> Any:
    if not isinstance(value, str) or not value.strip():
        return value or None
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InitializerError(f"{name} is text, but not JSON: {error}") from error
