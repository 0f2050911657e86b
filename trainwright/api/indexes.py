"""Sets of completion indexes and their text format in a Job's status: `0,2-4`."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.integers import parse_count


def indexes_text(indexes: Iterable[int]) -> str:
    """Format indexes. Intervals of three or more are written `a-b`, two consecutive ones `a,b`."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(set(indexes)), None]:
        if run and index is not None and index == run[-1] + 1:
            run.append(index)
            continue
        if run:
            parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)))
        run = [index] if index is not None else []
    return ",".join(parts)


def parse_indexes(text: str | None, completions: int) -> set[int]:
    """Parse a text of indexes below `completions`; empty for an empty text.

    Anyone with write access to the status can write the text. Like the Job controller, ignores intervals that are not numbers,
    and cuts those that exceed `completions`.
    """
    indexes: set[int] = set()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        begin, end = parse_count(first), parse_count(last or first)
        if begin is not None and end is not None:
            indexes.update(range(begin, min(end + 1, completions)))
    return indexes
