"""The error of settings that cannot be used: every problem with its path, in the words of the project instead of pydantic's.

An error has no input in it, which may be a credential.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_WORDS = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "dict_type": "expected an object",
    "extra_forbidden": "unknown",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "int_from_float": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "list_type": "expected a list",
    "missing": "required",
    "string_type": "expected text",
}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


class InvalidSettings(ValueError):
    """Settings that cannot be used. `problems` has a path, such as `limits.run_timeout_seconds`, and a message for each."""

    def __init__(self, problems: list[tuple[str, str]]):
        self.problems = problems
        super().__init__("; ".join(f"{path}: {message}" if path else message for path, message in problems))


@contextmanager
def within(path: str, separator: str = ".") -> Iterator[None]:
    """Put a path before those of the problems of settings that are parsed in the block."""
    try:
        yield
    except InvalidSettings as error:
        raise InvalidSettings(
            [(f"{path}{separator}{inner}" if inner else path, message) for inner, message in error.problems]
        ) from None


def problems_in_words(error: ValidationError) -> list[tuple[str, str]]:
    """Return a path and a message for each error. One about several settings names one of them first."""
    return [problem for one in error.errors(include_url=False, include_input=False) for problem in _problems(one)]


def _problems(error: ErrorDetails) -> list[tuple[str, str]]:
    path = ".".join(map(str, error["loc"]))
    within = (error.get("ctx") or {}).get("error")
    if isinstance(within, InvalidSettings):
        return [(".".join(filter(None, (path, inner))), message) for inner, message in within.problems]
    return [(path, words_of(error).removeprefix(f"{path.rpartition('.')[2]}: "))]


def message_of(error: Exception) -> str:
    """Return the message of an error; of pydantic's the problems alone, without its heading and its links."""
    from pydantic import ValidationError  # not at the top: declarations of settings are imported where nothing is validated

    return str(InvalidSettings(problems_in_words(error))) if isinstance(error, ValidationError) else str(error)


def words_of(error: ErrorDetails) -> str:
    """Return the message of an error without pydantic's words, and without the input, which may be a credential."""
    about = error.get("ctx") or {}
    if error["type"] in _WORDS:
        return _WORDS[error["type"]]
    if error["type"] == "literal_error":
        choices = about["expected"].replace(chr(39), "")
        return f"expected {choices.removeprefix(', ').removeprefix(' or ')}"
    if about.get("ge") == 0:
        return "expected a number that is not negative"
    for bound, words in _BOUNDS.items():
        if bound in about:
            return f"expected {words} {about[bound]}"
    return str(error["msg"]).removeprefix("Value error, ")
