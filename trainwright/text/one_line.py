"""Texts of a cluster in one line, for logs, terminals and messages: anyone who may write an Event or run a container writes them."""

from __future__ import annotations


def one_line(text: object) -> str:
    """Return a text without control characters, and with single spaces between words; "" for None."""
    if text is None:
        return ""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
