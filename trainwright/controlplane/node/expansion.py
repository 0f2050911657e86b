"""`$(NAME)` in commands, variables and sub-paths, as Kubernetes expands it, within what a program can be given.

References may refer to references: 40 lines of `$(A)$(A)` would take terabytes, so sizes are checked while texts are expanded.
Source: third_party/forked/golang/expansion of Kubernetes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

MAX_TEXT = 128 * 1024
"""Bytes of a variable with its name, or of a word: MAX_ARG_STRLEN of execve(2)."""
MAX_TEXTS = 2 * 1024 * 1024
"""Bytes of all variables and words: ARG_MAX with the usual stack."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ESCAPED = re.compile(r"\$(\$)")


class ArgumentsTooLong(OSError):
    """No program can be given these variables or words, as execve(2) would say."""

    def __init__(self, what: str, most: int):
        super().__init__(errno.E2BIG, f"argument list too long: {what} of more than {most} bytes")

    def __str__(self) -> str:
        return str(self.strerror)


def expand_references(text: str, variables: Mapping[str, str], what: str = "a text") -> str:
    """Replace `$(NAME)` by a variable's value.

    `$$` is an escaped `$`; a reference ends at the next `)`; unknown names and all other text are kept. `what` is for messages.
    Raises ArgumentsTooLong.
    """

    def value_of(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return substituted(text, _matches(text), value_of, what)


def substituted(text: str, matches: Iterable[re.Match[str]], value_of: Callable[[re.Match[str]], str], what: str) -> str:
    """Replace matches in a text by their values. Raises ArgumentsTooLong as soon as the result would be too long."""
    parts: list[str] = []
    end = size = 0
    for match in matches:
        value = value_of(match)
        parts += (text[end : match.start()], value)
        end, size = match.end(), size + match.start() - end + len(value)
        if size > MAX_TEXT:
            raise ArgumentsTooLong(what, MAX_TEXT)
    return "".join(parts) + text[end:]


def expand_words(words: Iterable[str], variables: Mapping[str, str], rewrite: Callable[[str], str] = str) -> list[str]:
    """Expand the words of a command, and apply `rewrite` to each. Raises ArgumentsTooLong."""
    room, found = Room(), list[str]()
    for number, word in enumerate(words):
        found.append(rewrite(expand_references(word, variables, f"word {number} of the command")))
        room.take(found[-1], f"word {number} of the command")
    return found


class Room:
    """The rest of MAX_TEXTS."""

    def __init__(self) -> None:
        self._left = MAX_TEXTS

    def take(self, text: str, what: str) -> None:
        """Take the bytes of a text, and of the NUL at its end. Raises ArgumentsTooLong."""
        size = len(os.fsencode(text)) + 1
        self._left -= size
        if size > MAX_TEXT:
            raise ArgumentsTooLong(what, MAX_TEXT)
        if self._left < 0:
            raise ArgumentsTooLong("all", MAX_TEXTS)


def references_in(text: str) -> list[str]:
    """Return the names that a text refers to, in order."""
    return [match[1] for match in _matches(text) if match[0] != "$$"]


def _matches(text: str) -> Iterator[re.Match[str]]:
    """Yield references and escaped `$`. After the last `)` there are no references: each `$(` would be searched to the end."""
    end = text.rfind(")") + 1
    return chain(_REFERENCE.finditer(text, 0, end), _ESCAPED.finditer(text, end))
