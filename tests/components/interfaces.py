"""The interfaces of components and pipelines as checked in: inputs with types and defaults, and outputs. As a program: writes them.

A user's pipeline is compiled against them, so a change of one is a change that users see.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "interfaces"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
"""Of components and pipelines. A test compares them with `compilables`, which takes seconds."""


@functools.cache
def compilables() -> dict[str, Any]:
    """All components and pipelines by name."""
    from trainwright.pipelines.build import compiled_names

    return dict(compiled_names())


def interface_of(compilable: Any) -> dict[str, Any]:
    """Inputs and outputs by name, from the compiled form: a parameter's type, and its default where it has one."""
    from kfp import compiler

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "compiled.yaml"
        compiler.Compiler().compile(compilable, str(target))
        root = next(yaml.safe_load_all(target.read_text("utf-8")))["root"]
    return {part: _parts(root.get(f"{part}Definitions") or {}) for part in ("input", "output")}


def _parts(definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        name: {"type": about["parameterType"]} | ({"default": about["defaultValue"]} if "defaultValue" in about else {})
        for name, about in (definitions.get("parameters") or {}).items()
    }
    artifacts = {
        name: {"type": about["artifactType"]["schemaTitle"]} | ({"optional": True} if about.get("isOptional") else {})
        for name, about in (definitions.get("artifacts") or {}).items()
    }
    return parameters | artifacts


def checked_in(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    return loaded


if __name__ == "__main__":
    for name, compilable in compilables().items():
        (FOLDER / f"{name}.yaml").write_text(yaml.safe_dump(interface_of(compilable), sort_keys=True), "utf-8")
