"""Finds phrases of the rules in a tree and in its commits, and compares them with the known and the allowed ones."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from prose.texts import Prose, markdown_paragraphs, plain, python_paragraphs, test_names

FOLDER = Path("docs/prose")
KNOWN, ALLOWED, RULES = FOLDER / "known.txt", FOLDER / "allowed.txt", FOLDER / "rules.toml"
FOLDERS = ("trainwright", "components", "operators", "pipelines", "dags", "quickstart", "deploy", "docs", "tests", "bench")
SUBJECT_LENGTH = 72
COMMIT = "commit"  # the path of allowances for subjects: hashes change in a rebase


class Entry(NamedTuple):
    """A finding without its line, so that the list does not change with edits elsewhere in the file."""

    path: str
    rule: str
    excerpt: str


class Finding(NamedTuple):
    entry: Entry
    line: int
    """0 for the subject of a commit."""
    words: str
    """The phrase, as the text has it."""
    say: str

    def __str__(self) -> str:
        where = f"{self.entry.path}:{self.line}" if self.line else self.entry.path
        return f'{where}: "{self.words}" in: {self.entry.excerpt} -> {self.say}'


class Rules:
    """All phrases as one expression, so that each text is searched once."""

    def __init__(self, path: Path) -> None:
        tables = tomllib.loads(read(path))
        self._rules = [("sentence", say) for say in tables["sentences"].values()]
        patterns = [re.escape(phrase.lower().replace("`", "")) for phrase in tables["sentences"]]
        for name, about in tables["words"].items():
            self._rules.append((name, about if isinstance(about, str) else about["say"]))
            patterns.append(re.escape(name) if isinstance(about, str) else about["pattern"])
        # A lookahead consumes nothing: a sentence does not hide the words inside it.
        alternatives = "|".join(rf"({pattern})\b" for pattern in patterns)
        self._expression = re.compile(rf"\b(?={alternatives})")
        if self._expression.groups != len(self._rules):
            raise ValueError(f"{path}: a pattern has a capturing group; write (?:...)")

    def findings(self, path: str, prose: Prose) -> Iterator[Finding]:
        for found in self._expression.finditer(prose.text.lower()):
            assert found.lastindex is not None
            rule, say = self._rules[found.lastindex - 1]
            start, end = found.span(found.lastindex)
            words = prose.text[start:end]
            if not prose.is_code(start, end) and not words.isupper():
                yield Finding(Entry(path, rule, prose.excerpt(start, end)), prose.line_at(start), words, say)


def findings(root: Path) -> Iterator[Finding]:
    """Yield the findings in pages and code below `root`."""
    rules = Rules(root / RULES)
    for file in _files(root):
        path, source = file.relative_to(root).as_posix(), read(file)
        if file.suffix == ".md":
            paragraphs = markdown_paragraphs(source)
        elif path.startswith("tests/"):
            # Strings of tests are data as often as prose.
            paragraphs = chain(python_paragraphs(source, only_docstrings=True), test_names(source))
        else:
            paragraphs = python_paragraphs(source, only_docstrings=False)
        yield from rules.findings(path, Prose(paragraphs))


def read(path: Path) -> str:
    """Return the text of a file, or raise a ValueError that names it."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error


def subject_findings(root: Path) -> tuple[list[Finding], str]:
    """Return the findings in subjects of commits after the rules, and a note with their number or why none was checked."""
    added = _commit_that_added(root, RULES)
    if added is None:
        why = "a shallow clone" if _is_shallow(root) else "no git, or the rules are not committed"
        return [], f"growth of {KNOWN.name} and subjects of commits not checked: {why}"
    # Only descendants: a branch that began before the rules could not know them.
    log = _git(root, "log", "--no-merges", "--ancestry-path", "--format=%h\t%s", f"{added}..HEAD") or ""
    rules = Rules(root / RULES)
    found: list[Finding] = []
    for line in log.splitlines():
        commit, subject = line.split("\t", 1)
        path = f"{COMMIT} {commit}"
        if len(subject) > SUBJECT_LENGTH:
            say = f"at most {SUBJECT_LENGTH} characters, not {len(subject)}"
            found.append(Finding(Entry(path, "subject", subject), 0, subject[SUBJECT_LENGTH:], say))
        for one in rules.findings(path, Prose([[(1, subject)]])):
            # The whole subject: an allowance may have any part of it.
            found.append(one._replace(entry=Entry(path, one.entry.rule, subject), line=0))
    return found, f"subjects of commits checked: {len(log.splitlines())}"


@dataclass
class Comparison:
    """How findings differ from a list of known ones."""

    known: list[Finding] = field(default_factory=list)
    moved: list[Finding] = field(default_factory=list)
    """Known in another file, where they are gone."""
    new: list[Finding] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)


def compare(found: Iterable[Finding], known: Iterable[Entry]) -> Comparison:
    """Pair findings with known ones: of the same file first, then of any file."""
    result = Comparison()
    left, rest = Counter(known), []
    for finding in found:
        if left[finding.entry]:
            left[finding.entry] -= 1
            result.known.append(finding)
        else:
            rest.append(finding)
    result.gone = sorted(left.elements())
    for finding in rest:
        before = next((entry for entry in result.gone if entry[1:] == finding.entry[1:]), None)
        if before is None:
            result.new.append(finding)
        else:
            result.gone.remove(before)
            result.moved.append(finding)
    return result


class Allowance(NamedTuple):
    line: int
    path: str
    phrase: str


def allowances(text: str) -> Iterator[Allowance]:
    """Parse lines of a path (or `commit`), a phrase and a reason, separated by tabs.

    Raises:
        ValueError: a line lacks one of them.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            path, phrase, reason = ([one.strip() for one in line.split("\t")] + ["", "", ""])[:3]
            if not (path and phrase and reason):
                raise ValueError(f"{ALLOWED}:{number}: an allowance has a path, a phrase and a reason, separated by tabs")
            yield Allowance(number, path, plain(phrase))


def split_allowed(found: Iterable[Finding], allowed: list[Allowance]) -> tuple[list[Finding], list[Allowance]]:
    """Return the findings that nothing allows, and the allowances that no finding needs.

    Those of commits are never unneeded: a shallow clone does not have all commits.
    """
    used: set[Allowance] = set()
    rest = []
    for finding in found:
        path, excerpt = finding.entry.path if finding.line else COMMIT, plain(finding.entry.excerpt)
        by = [one for one in allowed if one.path == path and one.phrase in excerpt]
        used.update(by)
        if not by:
            rest.append(finding)
    return rest, [one for one in allowed if one not in used and one.path != COMMIT]


def parse_known(text: str) -> list[Entry]:
    return [Entry(*line.split("\t")) for line in text.splitlines()]


def format_known(found: Iterable[Finding]) -> str:
    return "".join("\t".join(entry) + "\n" for entry in sorted(finding.entry for finding in found))


def committed_known(root: Path) -> str | None:
    """Return the list of known findings as the last commit has it, None without git, commit or list."""
    return _git(root, "show", f"HEAD:./{KNOWN}")


def late_known(root: Path) -> set[tuple[str, ...]]:
    """Return rule and excerpt of what a commit after the first list, or the uncommitted change, has added to the list.

    `make prose` may change the file of an entry, when a file moves.
    """
    # Only modifications: compared with a parent from before the list, a merge adds all of it.
    form = ("-U0", "--no-color", "--no-ext-diff", "--diff-filter=M")
    patches = [_git(root, "diff", *form, "HEAD", "--", str(KNOWN)) or ""]
    if added := _commit_that_added(root, KNOWN):
        patches += (_git(root, "log", "-p", "-m", "--format=%x00", *form, f"{added}..HEAD", "--", str(KNOWN)) or "").split("\0")
    late: set[tuple[str, ...]] = set()
    for patch in patches:
        rows = [line.split("\t") for line in patch.splitlines() if line.count("\t") == 2]
        before, after = (Counter((rule, excerpt) for path, rule, excerpt in rows if path[0] == sign) for sign in "-+")
        late.update(after - before)
    return late


def _files(root: Path) -> Iterator[Path]:
    """Yield the pages of `root`, and the pages and modules in its folders."""
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS:
        # Links are not followed: `trainwright/components` is `components`.
        for parent, folders, names in os.walk(root / folder):
            folders.sort()
            yield from (Path(parent, name) for name in sorted(folders + names) if name.endswith((".md", ".py")))


def _commit_that_added(root: Path, path: Path) -> str | None:
    """Return the commit that added `path`; None in a shallow clone, where the oldest commit seems to have added all files."""
    log = None if _is_shallow(root) else _git(root, "log", "--diff-filter=A", "--format=%H", "--", str(path))
    return log.split()[-1] if log else None


def _is_shallow(root: Path) -> bool:
    return _git(root, "rev-parse", "--is-shallow-repository") == "true\n"


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
