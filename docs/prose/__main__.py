"""Checks the words of pages, docstrings, comments, messages, test names and commit subjects; `make lint` runs it.

Findings from before this check are listed in known.txt, which may only shrink: a finding that is not listed fails, and so do an
entry that no longer occurs and one that was added after the first list. `--update` (`make prose`) removes entries and follows moved
files; it adds nothing to the list of the last commit. A phrase that is right in its place has a line in allowed.txt, with the reason.
The scripts of the web page (trainwright/ui/static) are not checked: finding the strings of JavaScript needs a parser.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from prose.findings import (
    ALLOWED,
    KNOWN,
    allowances,
    committed_known,
    compare,
    findings,
    format_known,
    late_known,
    parse_known,
    read,
    split_allowed,
    subject_findings,
)

ROOT = Path(__file__).parents[2]
ADVICE = f"""\
Each of these is new, or you have changed the words around an old one: say it otherwise ({KNOWN} takes no more).
A phrase that is right in its place gets a line with the reason in {ALLOWED}: see "Changes" in CONTRIBUTING.md."""


def main(root: Path = ROOT, *, update: bool = False) -> int:
    """Print what is wrong in the tree at `root`, and return the exit status."""
    try:
        return _check(root, update=update)
    except ValueError as error:
        print(error)
        return 1


def _check(root: Path, *, update: bool) -> int:
    allowed = list(allowances(_read(root / ALLOWED) or ""))
    subjects, note = subject_findings(root)
    found, unused = split_allowed([*findings(root), *subjects], allowed)
    in_files, in_subjects = [one for one in found if one.line], [one for one in found if not one.line]
    base = _read(root / KNOWN)
    if update:
        committed = committed_known(root)
        base = base if committed is None else committed
    # Without any list, the first one gets all findings.
    is_first = update and base is None
    result = compare(in_files, [one.entry for one in in_files] if is_first else parse_known(base or ""))
    listed = [*result.known, *result.moved]
    if update:
        (root / KNOWN).write_text(format_known(listed), "utf-8")
    late = late_known(root)
    wrong = [*result.new, *in_subjects, *(one for one in listed if one.entry[1:] in late)]
    for finding in wrong:
        print(finding)
    if not update:
        for finding in result.moved:
            print(finding._replace(say="known in another file: run `make prose`"))
        for entry in result.gone:
            print(f"{KNOWN}: {entry.path} no longer says: {entry.excerpt} -> run `make prose`")
    for allowance in unused:
        print(f"{ALLOWED}:{allowance.line}: {allowance.path} no longer says: {allowance.phrase} -> remove the line")
    print(f"prose: {len(wrong)} new, {len(result.known)} known, {len(result.moved)} moved, {len(result.gone)} gone; {note}")
    if wrong:
        print(ADVICE)
    return int(bool(wrong or unused or (not update and (result.moved or result.gone))))


def _read(path: Path) -> str | None:
    return read(path) if path.exists() else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="rewrite the list of known findings, without adding any")
    sys.exit(main(update=parser.parse_args().update))
