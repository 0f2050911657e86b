"""Texts of others on a terminal: whoever names an object or writes a log must not retitle, recolour or rewrite what is shown.

`one_line` is for messages; these keep spaces and lines as they are.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters of C0 (but tab and line feed) and C1, marks that reorder text, and halves of surrogate pairs."""
_SEQUENCE = re.compile(
    r"""
      (?P<colours>\x1b\[[0-9;:]{0,64}m)                              # colours, which are kept
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?   # titles, links, clipboard, device control
    | (?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?                                # cursor and screen
    | \x1b[ -/]*+[0-~]?                                                  # other escape sequences
    | [\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]
    """,
    re.VERBOSE,
)


def printable(text: object) -> str:
    """Return a text with control characters as escapes such as `\\x1b`."""
    return _CONTROL.sub(lambda found: _escape(found[0]), str(text))


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
    return _SEQUENCE.sub(lambda found: found[0] if len(found[0]) == 1 and found[0] != "\x1b" else "", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
