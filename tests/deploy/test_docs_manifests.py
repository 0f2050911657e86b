"""Every manifest in the documentation is one that a cluster takes, and every file of values one that the chart takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.client_environments import ROOT

from trainwright.api.admission.admit import admit

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(start: str = "") -> list[tuple[str, str]]:
    """The page and text of each block of YAML whose first line starts so."""
    found = [(page, text) for page in PAGES for text in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    return [(_id(page), text) for page, text in found if text.startswith(start)]


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def manifests() -> list[Any]:
    objects = [(page, obj) for page, text in blocks() for obj in yaml.safe_load_all(text) if isinstance(obj, dict)]
    return [pytest.param(obj, id=f"{page}-{obj['kind']}") for page, obj in objects if {"apiVersion", "kind"} <= obj.keys()]


def test_documentation_contains_manifests() -> None:
    assert len(manifests()) >= 2
    assert blocks("# values.yaml\n")


@pytest.mark.parametrize("manifest", manifests())
def test_a_manifest_is_admitted(manifest: dict[str, Any]) -> None:
    assert not admit(manifest).warnings


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(text, id=page) for page, text in blocks("# values.yaml\n")),
        pytest.param((ROOT / "deploy/kind/values.yaml").read_text("utf-8"), id="kind"),
    ],
)
def test_values_are_taken_by_the_chart(helm: Any, text: str) -> None:
    for obj in helm.objects(yaml.safe_load(text)):
        admit(obj)
