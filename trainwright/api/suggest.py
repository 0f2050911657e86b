"""The name that somebody probably meant, for messages about names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or what there is where nothing is near; empty where there is nothing."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known here: {', '.join(names)}" if names else ""
