"""The READMEs of components and pipelines say what the signatures say; `make docs` writes them."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from readmes import EXAMPLE, readmes

compiler = OnFirstUse("kfp.compiler")
dsl = OnFirstUse("kfp.dsl")

pytestmark = pytest.mark.medium


def test_each_readme_is_current_describes_every_input_and_has_an_example() -> None:
    found = list(readmes())
    assert found
    for path, text in found:
        assert path.read_text("utf-8") == text, f"{path.parent.name}/README.md is stale: run `make docs`"
        assert EXAMPLE in text
        undescribed = [line for line in text.splitlines() if line.startswith("| `") and line.endswith("|  |")]
        assert not undescribed, path


FOLDERS = sorted(path.parent for path in (Path(__file__).parents[2] / "components").glob("*/README.md"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_example_of_a_component_compiles(folder: Path, tmp_path: Path) -> None:
    found = re.search(r"## Example\n\n```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec("def example():\n" + textwrap.indent(found[1], "    "), names)
    compiler.Compiler().compile(dsl.pipeline(names["example"]), str(tmp_path / "example.yaml"))
    assert folder.name.replace("_", "-") in (tmp_path / "example.yaml").read_text()
