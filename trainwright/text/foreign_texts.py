"""Texts of others, made fit for our messages, for terminals and for Markdown.

Anyone who may write an Event, name an object or run a container writes them. They must not retitle, recolour or rewrite a terminal,
nor become a link, an image or HTML. URIs and the errors of libraries may contain passwords, signatures or tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def one_line(text: object) -> str:
    """Return a text without control characters, and with single spaces between words; "" for None."""
    if text is None:
        return ""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())


_LONGEST_ERROR = 300
_USER = re.compile(r"(?<=://)[^/\s@]{1,512}+@")
_PASSWORD = re.compile(r"(?<=://)[^/\s@:]{0,256}+:[^/\s@]{0,512}+@")
_QUERY = re.compile(r"\?[^\s'\"<>]++")
_HEADER = re.compile(r"(?i)\b(bearer|basic|authorization:?|x-amz-security-token:?)\s{1,4}(?:(?:bearer|basic)\s{1,4})?\S++")
_READ = 4096
"""Characters that are looked at."""


def shown_uri(text: str) -> str:
    """Return a URI that a user has given, quoted for a message: without a password and without a query, which may be a signature."""
    return repr(_QUERY.sub("?...", _PASSWORD.sub("***@", text[:_READ])))


def without_user(text: str) -> str:
    """Return a text whose URIs have no user name and password."""
    return _USER.sub("", text)


def without_credentials(error: object) -> str:
    """Return the first line of an error's text without user names and queries of addresses, tokens and control characters."""
    lines = str(error)[:_READ].strip().splitlines()
    text = _QUERY.sub("", without_user(lines[0] if lines else ""))
    return one_line(_HEADER.sub(r"\1 ***", text))[:_LONGEST_ERROR] or type(error).__name__


# For a terminal: spaces and lines stay as they are.

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


# For Markdown, in a table's cell too.

_LONGEST_LINE, _LONGEST_BLOCK = 300, 600
"""Characters of a text in a line, and in a block; longer ones are truncated."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$:@.-])")
_RUNS = re.compile(r"`+")


def escaped(text: str, most: int = _LONGEST_LINE) -> str:
    """Return a text in one line of at most so many characters that Markdown shows as it is, in a table's cell, too."""
    return _SPECIAL.sub(r"\\\1", _truncated(one_line(text), most))


def escaped_advice(text: str) -> str:
    """Return a text as `escaped`, of the length of a block: what to do stands at its end."""
    return escaped(text, _LONGEST_BLOCK)


def code(text: str) -> str:
    """Return a text as inline code, for a table's cell, too."""
    short = _short(text)
    if not short:
        return ""
    if "|" in short or "\\" in short:  # parsers disagree about bars in the code of a cell
        return escaped(short)
    fence = "`" * (_longest_run(short) + 1)
    padding = " " if short.startswith("`") or short.endswith("`") else ""
    return f"{fence}{padding}{short}{padding}{fence}"


def fenced(text: str) -> str:
    """Return a text as a block of code, whose fence is longer than any in the text."""
    block = _truncated(text.strip("\n"), _LONGEST_BLOCK)
    fence = "`" * max(_longest_run(block) + 1, 3)
    return f"{fence}text\n{block}\n{fence}"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table; its cells are Markdown already."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(text: str) -> str:
    return _truncated(one_line(text), _LONGEST_LINE)


def _truncated(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _RUNS.findall(text)), default=0)
