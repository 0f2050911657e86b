"""The linter of prose finds phrases over line wraps, and its list of known findings never grows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("needs a checkout, which has docs/", allow_module_level=True)
# Only for the import: other modules of the folder have the names of packages, such as `airflow`.
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(DOCS))
    from prose import __main__ as program
    from prose import findings as prose
    from prose import texts

RULES = """\
[sentences]
"a sentence of `five` words" = "five words"

[words]
"in vain" = "cannot succeed"
"mend" = "fix"
"is no X" = { pattern = "is no \\\\w+", say = "is not a X" }
"test name" = { pattern = "test_(?:it|neither)(?:_\\\\w+)?", say = "name the unit" }
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with the rules above and an empty list."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook sets them: commits would go to the repository of the hook
    (tmp_path / "docs/prose").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / prose.RULES).write_text(RULES)
    (tmp_path / prose.KNOWN).write_text("")
    return tmp_path


def git(tree: Path, *arguments: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *author, *arguments], cwd=tree, capture_output=True, text=True, check=True).stdout


def commit(tree: Path, subject: str = "docs: add page") -> None:
    if not (tree / ".git").exists():
        git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "--no-verify", "--allow-empty", "-m", subject)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("README.md", "First.\n\nIt tries\nin\nvain.", [(4, "in vain", "It tries in vain.")]),
        ("README.md", "It tries in\n\nvain.", []),
        ("README.md", "```console\n$ in vain\n```\nIn vain it ends.", [(4, "in vain", "In vain it ends.")]),
        ("README.md", "~~~\nin vain\n~~~~\nIn\nvain.", [(4, "in vain", "In vain.")]),
        ("README.md", "> ```\n> in vain\n> ```\n> It tries in\n> vain.", [(4, "in vain", "It tries in vain.")]),
        ("README.md", "<!-- in vain\n\n```\n--> It tries in <!-- much --> vain.", [(4, "in vain", "It tries in vain.")]),
        ("README.md", "`mend`, ``in\nvain``, [a](mend.png), ![](mend.png) and MEND", []),
        ("README.md", "It tries in\n[vain](a.md) b.", [(1, "in vain", "It tries in [vain](a.md) b.")]),
        ("README.md", "A `default` is no `pod`.", [(1, "is no X", "A default is no pod.")]),
        ("README.md", "| tries in\n| vain |", []),
        (
            "docs/deep/page.md",
            "# One two three four in vain five six seven",
            [(1, "in vain", "two three four in vain five six seven")],
        ),
        ("README.md", "A sentence of\n`five` words.", [(1, "sentence", "A sentence of five words.")]),
        ("README.md", "begin vain, this is nothing", []),
        ("quickstart/a.py", '"""Tries.\n\n    This is\n    no pod.\n"""', [(3, "is no X", "This is no pod.")]),
        ("trainwright/a.py", "# This is\n# no pod.\n\n# Retries in\nx = 1  # vain", [(1, "is no X", "This is no pod.")]),
        (
            "trainwright/a.py",
            'raise E(\n    f"{name!r} is "\n    f"no pod of {len(x)}"\n)',
            [(2, "is no X", "{} is no pod of {}")],
        ),
        ("trainwright/a.py", 'log("# is", "no pod")\nlog("x\\nis no pod")', [(2, "is no X", "x is no pod")]),
        ("trainwright/a.py", "a = b'is no pod'\nis_no_pod = 1", []),
        (
            "trainwright/a.py",
            'log(\n  "is "  # is no\n  # pod\n\n  "no pod"\n)',
            [(2, "is no X", "is no pod"), (2, "is no X", "is no pod")],
        ),
        ("docs/a.py", 'a = [\n  \'x\', """\n is no pod"""]', [(3, "is no X", "is no pod")]),
        ("tests/a.py", "a = (\n  '''is no pod'''\n)\nb = 'is no pod'", []),
        ("tests/a.py", "def a():\n    '''Is no pod.'''", [(2, "is no X", "Is no pod.")]),
        ("tests/a.py", "\n\ndef test_it_runs(): ...", [(3, "test name", "test_it_runs")]),
        ("tests/a.py", "class A:\n    async def test_neither(self): ...", [(2, "test name", "test_neither")]),
        ("tests/a.py", "def test_items_are_listed(): ...", []),
        ("vendor/a.py", "# is no pod", []),
    ],
)
def test_findings_have_line_rule_and_excerpt(
    tree: Path, path: str, text: str, expected: list[tuple[int, str, str | None]]
) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text)
    found = list(prose.findings(tree))
    assert [(one.line, one.entry.rule) for one in found] == [one[:2] for one in expected]
    for finding, (_, _, excerpt) in zip(found, expected, strict=True):
        assert finding.entry.path == path
        assert excerpt in (None, finding.entry.excerpt)


@pytest.mark.parametrize(
    ("rule", "plain", "translated"),
    [
        ("is no X", "The default is no unless it is set", "This is no default"),
        ("is no X", "If there really is no pod", "If it really is no pod"),
        ("is no X", "It is no different from a pod", "It is no difference"),
        ("is no X", "It is no bigger", "It is no container"),
        ("what is ... of", "What is new to this release", "What is added to this release"),
        ("what is ... of", "what is safe to delete", "what is known about it"),
        ("tells X from Y", "The server tells clients from the start", "It tells clients from servers"),
        ("tells X from Y", "Read what the log tells you from line 3", "tells a new one from the stale"),
        ("of its own", "Bring a bucket of your own", "It has a bucket of its own"),
        ("are told", "The job is told to stop", "The job is told together with its pods"),
        ("in any case", "In any case-insensitive comparison", "Retry in any case"),
    ],
)
def test_rule_finds_translated_phrases_only(rule: str, plain: str, translated: str) -> None:
    rules = prose.Rules(ROOT / prose.RULES)
    found = [one.entry for one in rules.findings("a.md", texts.Prose([[(1, plain)], [(2, translated)]]))]
    assert [one.rule for one in found] == [rule]
    assert found[0].excerpt in translated


def test_all_tracked_pages_and_modules_are_read() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not tracked:
        pytest.skip("needs git")
    folders = {name.split("/")[0] for name in tracked.splitlines() if "/" in name}
    assert folders - set(prose.FOLDERS) == set()


def test_finding_is_printed_with_phrase_and_replacement(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "README.md").write_text("\nIt tries in **vain**.")
    (tree / "tests/a.py").write_text("def test_it_runs(): ...")
    assert program.main(tree) == 1
    page, name, summary, *advice = capsys.readouterr().out.splitlines()
    assert page == 'README.md:2: "in vain" in: It tries in **vain**. -> cannot succeed'
    assert name == 'tests/a.py:1: "test_it_runs" in: test_it_runs -> name the unit'
    assert summary.startswith("prose: 2 new, 0 known, 0 moved, 0 gone; ")
    assert "changed the words around an old one" in advice[0]
    assert "docs/prose/allowed.txt" in advice[-1]
    assert "CONTRIBUTING.md" in advice[-1]


def test_known_finding_passes_wherever_its_line_is(tree: Path) -> None:
    (tree / "README.md").write_text("It tries in vain.\n\nIt tries in vain.")
    (tree / prose.KNOWN).write_text("README.md\tin vain\tIt tries in vain.\n" * 2)
    assert program.main(tree) == 0
    (tree / "README.md").write_text("More.\n\nIt tries\nin vain.\n\nIt tries in vain.")
    assert program.main(tree) == 0
    (tree / "README.md").write_text("It tries in vain.\n\n" * 3)
    assert program.main(tree) == 1


def test_stale_entry_fails_until_the_list_is_updated(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "README.md").write_text("It fails.")
    (tree / prose.KNOWN).write_text("README.md\tin vain\tIt tries in vain.\n")
    assert program.main(tree) == 1
    assert "README.md no longer says: It tries in vain. -> run `make prose`" in capsys.readouterr().out
    assert program.main(tree, update=True) == 0
    assert (tree / prose.KNOWN).read_text() == ""
    assert program.main(tree) == 0


@pytest.mark.parametrize(
    ("allowed", "status"),
    [
        ("README.md\tin Vain\tquotes a poem\n", 0),
        ("README.md\ta `b` *tries*  in **vain**\tcopied from the page\n", 0),
        ("# a comment\n\nREADME.md\tin vain\tquotes a poem\n", 0),
        ("README.md\tin vain\t \n", 1),
        ("README.md\tin vain\n", 1),
        ("docs/page.md\tin vain\tanother file\n", 1),
        ("README.md\tin vain\tquotes a poem\nREADME.md\tis no pod\tno longer there\n", 1),
        ("README.md\tin vain\tquotes a poem\ncommit\tin vain\tnot in this clone\n", 0),
        ("README.md\tin vain\tquotes a poem\ncommit 0123456\tin vain\tby hash\n", 1),
    ],
)
def test_allowance_needs_a_reason_and_a_finding(tree: Path, allowed: str, status: int) -> None:
    (tree / "README.md").write_text("A `b` *tries* in **vain**.")
    (tree / prose.ALLOWED).write_text(allowed)
    assert program.main(tree) == status


def test_subjects_are_checked_from_the_commit_after_the_rules(tree: Path) -> None:
    (tree / "README.md").write_text("A page.")
    commit(tree, "x" * 73)
    assert prose.subject_findings(tree) == ([], "subjects of commits checked: 0")
    for subject in ("x" * 72, "y" * 73, "docs: retry in vain"):
        commit(tree, subject)
    found, note = prose.subject_findings(tree)
    assert [one.entry.rule for one in found] == ["in vain", "subject"]
    assert note == "subjects of commits checked: 3"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("subject", "allowed"), [("y" * 73, "yyy"), ("docs: do `this` and this and that in vain", "Do `this` and this and that")]
)
def test_subject_is_allowed_by_its_text(tree: Path, subject: str, allowed: str) -> None:
    commit(tree)
    commit(tree, subject)
    assert program.main(tree) == 1
    (tree / prose.ALLOWED).write_text(f"commit\t{allowed}\tpushed before the check ran\n")
    assert program.main(tree) == 0
    git(tree, "commit", "-q", "--amend", "--no-verify", "--allow-empty", "-m", f"{subject}, x", "--reset-author")
    assert program.main(tree) == 0


def listed(tree: Path, pages: str) -> None:
    """Commit pages of one finding each, a letter each, which is listed."""
    for old in tree.glob("*.md"):
        old.unlink()
    for page in pages:
        (tree / f"{page}.md").write_text(f"{page.upper()} tries in vain.")
    (tree / prose.KNOWN).write_text("".join(f"{page}.md\tin vain\t{page.upper()} tries in vain.\n" for page in pages))
    commit(tree)


@pytest.mark.parametrize(
    ("lists", "late"),
    [
        (["ab", "a"], ""),
        (["ab", "abc"], "c"),
        (["ab", "abc", "abc"], "c"),
        (["ab", "abc", "bc"], "c"),
        (["ab", "ac"], "c"),
        (["ab", "a", "ab"], "b"),
        (["ab", "abc", "ab"], ""),
    ],
)
def test_entry_added_after_the_first_list_fails(
    tree: Path, lists: list[str], late: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for pages in lists:
        listed(tree, pages)
    assert program.main(tree) == bool(late)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed if " in: " in line] == [f"{page}.md" for page in late]
    assert program.main(tree, update=True) == bool(late)


def test_moved_file_adds_no_entry(tree: Path) -> None:
    listed(tree, "ab")
    (tree / "a.md").rename(tree / "c.md")
    assert program.main(tree, update=True) == 0
    commit(tree)
    assert "c.md" in (tree / prose.KNOWN).read_text()
    assert program.main(tree) == 0


@pytest.mark.medium
def test_known_findings_only_shrink() -> None:
    if "not checked" in prose.subject_findings(ROOT)[1]:
        pytest.skip("needs git and all commits")
    known = prose.parse_known((ROOT / prose.KNOWN).read_text("utf-8"))
    assert prose.late_known(ROOT) & {entry[1:] for entry in known} == set()
