"""Texts of others on a terminal: whoever names an object or writes a log must not retitle, recolour or rewrite what is shown.

`one_line` is for messages; these keep spaces and lines as they are.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters of C0 (but tab and line feed) and C1, marks that reorder text, and halves of surrogate pairs."""
_LONG = r"""
      (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?   # titles, links, clipboard, device control
    | (?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?                                # cursor and screen
    | \x1b[ -/]*+[0-~]?                                                  # other escape sequences
"""
_LONG_SEQUENCE = re.compile(_LONG, re.VERBOSE)
_SEQUENCE = re.compile(
    rf"""
      (?P<colours>\x1b\[[0-9;:]{{0,64}}m)                              # colours, which are kept
    | {_LONG}
    | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]
    """,
    re.VERBOSE,
)


def printable(text: object) -> str:
    """Return a text with control characters as escapes such as `\\x1b`."""
    text = str(text)
    return text if _CONTROL.search(text) is None else text.translate(_ESCAPES)


def json_printable(text: str) -> str:
    """Return JSON with the same value, whose strings contain no control characters as they are."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def with_colours_only(text: str) -> str:
    """Return the line of a log for a terminal: colours and carriage returns are kept, all other control sequences dropped."""
    return _SEQUENCE.sub(lambda found: found[0] if found["colours"] is not None else "", text)


def plain(text: str) -> str:
    """Return lines without any control sequences, for reports that quote a log."""
    return _SEQUENCE.sub("", text).replace("\r", " ")


def without_sequences(text: str) -> str:
    """Return a text without colours, cursor movements and other sequences; control characters that stand alone are kept."""
    return _LONG_SEQUENCE.sub("", text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class _Escapes(dict[int, int | str]):
    """For str.translate; is filled as it is used."""

    def __missing__(self, code: int) -> int | str:
        is_control = _CONTROL.match(chr(code)) is not None
        value = _escape(code) if is_control else code
        if is_control or code < 256:
            self[code] = value
        return value


_ESCAPES = _Escapes()
