"""All recordings of the real Trainer and of admission, as a table of areas; exit status 1 on any difference.

Usage: python tests/materialize/table.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

import recording_differences as built
from recorders import admission_recordings as admission
from recorders.trainer_recordings import Recording, recordings

Compare = Callable[[Recording], str]
LEFT_OUT = {**built.DIFFERENT, **dict.fromkeys(built.NEED_A_CLUSTER, "whether a PriorityClass exists, only a server can say")}


def main() -> int:
    table = Table("recordings", "area", "same", "different", "left out", box=None)
    wrong: list[str] = []
    for title, cases, compare in _sets():
        for area, of_area in _by_area(cases).items():
            left = [case for case in of_area if case.name in LEFT_OUT and title in ("objects", "updates")]
            said = {case.name: compare(case) for case in of_area if case not in left}
            differing = [f"{title} {name}: {difference}" for name, difference in said.items() if difference]
            table.add_row(title, area, str(len(said) - len(differing)), str(len(differing)), str(len(left)))
            wrong += differing
    Console().print(table)
    for line in wrong:
        print(line[:500])
    for name, reason in sorted(LEFT_OUT.items()):
        print(f"left out: {name}: {reason}")
    return 1 if wrong else 0


def _sets() -> list[tuple[str, list[Recording], Compare]]:
    cases, status, updates = (recordings(name) for name in ("cases", "cases-status", "updates"))
    built_cases = [case for case in cases if not case.name.startswith("refuse-")]
    return [
        ("objects", built_cases, built.difference),
        ("progress", status, built.progress_difference),
        ("snapshots", [case for case in cases if built.has_snapshot(case)], built.snapshot_difference),
        ("updates", [case for case in updates if not case.has("delete")], built.update_difference),
        ("admitted", [case for case in [*cases, *status, *updates] if _is_admission(case)], _admission),
    ]


def _by_area(cases: list[Recording]) -> dict[str, list[Recording]]:
    areas: dict[str, list[Recording]] = {}
    for case in cases:
        areas.setdefault(case.name.split("-")[0], []).append(case)
    return areas


def _is_admission(case: Recording) -> bool:
    """Whether the answer is that of admission alone, not of a policy or of a namespace that is not there."""
    refused = admission.read(case.folder / "refused.yaml") if case.has("refused") else None
    return not refused or not (admission.needs_policy(refused) or refused["message"].startswith("namespaces "))


def _admission(case: Recording) -> str:
    return str(admission.difference(case.folder) or "")


if __name__ == "__main__":
    sys.exit(main())
