"""Suggestions for messages about names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X?`, the known names if none is similar, or an empty string if none is known."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known here: {', '.join(names)}" if names else ""
