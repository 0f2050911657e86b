"""Says pydantic's errors in the words of the project, and without the input, which may be a credential."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

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


def in_words(error: ValidationError, words: Callable[[ErrorDetails], str] | None = None) -> ValidationError:
    """Return an error with `words` (by default `words_of`) in place of pydantic's, without its links and without the input."""
    lines = [
        InitErrorDetails(
            type=PydanticCustomError("setting", "{message}", {"message": (words or words_of)(line)}), loc=line["loc"], input=None
        )
        for line in error.errors(include_url=False, include_input=False)
    ]
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)


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
