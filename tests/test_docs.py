"""The documentation names commands, targets and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from trainwright.cli import app
from trainwright.jobs.request.setting import settings_of
from trainwright.jobs.request.train_request import TrainRequest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("components/*/README.md")),
    *ROOT.glob("pipelines/*/README.md"),
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_to_headings_lead_to_one(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert heading in _headings(page.parent / target if target else page), f"{target}#{heading}"


def test_pages_that_the_code_names_exist() -> None:
    named = {
        found
        for folder in ("trainwright", "operators", "components", "pipelines", "dags")
        for path in (ROOT / folder).rglob("*.py")
        for found in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text("utf-8"))
    }
    assert {"docs/settings.md", "docs/airflow/credentials.md"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title).lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_are_found_on_the_path_of_the_environment(page: Path) -> None:
    """README.md activates it."""
    assert re.findall(r"^\$ \.venv/bin/.*", page.read_text("utf-8"), re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_exist(page: Path) -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    for fence in re.findall(r"```(?:console)?\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for name in re.findall(r"(?:^|[$(|]|&& )\s*trainwright ([a-z]+)", fence, re.MULTILINE):
            assert name in commands, f"trainwright {name}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^\$ make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_settings_with_their_group_exist(page: Path) -> None:
    """As `limits.restarts`."""
    groups = {name: set(settings_of(one.of)) for name, one in settings_of(TrainRequest).items() if one.of is not None}
    path = rf"(?:`|--training |training\.)({'|'.join(groups)})\.([a-z_]+)"
    for group, name in re.findall(path, page.read_text("utf-8")):
        assert name in groups[group], f"{group}.{name}"


def test_the_guarantees_name_tests_that_exist() -> None:
    for path in re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs/guarantees.md").read_text("utf-8")):
        assert (ROOT / path).exists(), path


def test_the_threat_model_names_tests_that_exist() -> None:
    """Each promise has at least one."""
    text = (ROOT / "docs/security.md").read_text("utf-8")
    for path, name in re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", text):
        assert (ROOT / path).is_file(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8"), (path, name)
    promises = [row for row in re.findall(r"^\| .* \|$", text, re.M) if "tests/" in row]
    assert len(promises) > 40
    rows = text[text.index("## What a pod cannot do") : text.index("## What is not promised")]
    assert not [row for row in re.findall(r"^\| .* \|$", rows, re.M) if "tests/" not in row and not row.startswith("| promise")]


def test_the_index_lists_every_page_once() -> None:
    index = ROOT / "docs/index.md"
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\): ", index.read_text("utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(index.parent)) for page in index.parent.rglob("*.md")} - {"index.md"}
    assert sorted(listed) == sorted(pages)
