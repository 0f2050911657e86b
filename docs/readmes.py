"""Writes the READMEs of components and pipelines from their signatures and docstrings; `make docs` runs it, and a test compares them.

What follows the heading `## Example` is written by hand and kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docstring_parser import parse

ROOT = Path(__file__).parents[1]
EXAMPLE = "## Example\n"
_TYPES = {
    "STRING": "text",
    "NUMBER_INTEGER": "integer",
    "NUMBER_DOUBLE": "number",
    "BOOLEAN": "true or false",
    "LIST": "list",
    "STRUCT": "object",
}
_CACHING = """## Caching

Called in Python, its tasks are not cached: a cache compares parameters, not the data that they name. A pipeline that loads the
component from YAML has to turn caching off itself, with `task.set_caching_options(False)`.
"""
_INTERNAL = {"TASK_CONFIG", "TASK_FINAL_STATUS"}
"""Types of inputs that the backend sets."""


def readme_of(compilable: Any, interface: dict[str, Any], old: str, base: dict[str, str] | None = None) -> str:
    """Return the README of a component or pipeline. `interface` is its compiled interface, `old` the existing README, `base` the
    descriptions of inputs that its docstring leaves to another component."""
    documented = parse(_docstring(compilable))
    inputs = {**(base or {}), **{one.arg_name: one.description or "" for one in documented.params}}
    long = f"\n\n{documented.long_description}" if documented.long_description else ""
    parts = [f"# {_name(compilable)}\n", f"{documented.short_description or ''}{long}\n"]
    order = list(compilable.component_spec.inputs or {})
    given = sorted(interface["input"].items(), key=lambda entry: order.index(entry[0]))
    for title, entries, texts in (
        ("Inputs", given, inputs),
        ("Outputs", list(interface["output"].items()), _returned(documented, inputs)),
    ):
        rows = list(_rows(entries, texts))
        if rows:
            parts.append(f"## {title}\n\n| name | type | default | |\n|---|---|---|---|\n" + "".join(rows))
    if base is None:
        parts.append(_CACHING)
    if EXAMPLE in old:
        parts.append(old[old.index(EXAMPLE) :])
    return "\n".join(parts)


def descriptions(compilable: Any) -> dict[str, str]:
    """Return the descriptions of a component's inputs."""
    return {one.arg_name: one.description or "" for one in parse(_docstring(compilable)).params}


def readmes() -> Iterator[tuple[Path, str]]:
    """Yield the path of each README and its contents as it should be."""
    sys.path.insert(0, str(ROOT / "tests/components"))
    from interfaces import compilables, interface_of

    for name, each in compilables().items():
        is_pipeline = name.endswith("_pipeline")
        path = ROOT / ("pipelines" if is_pipeline else "components") / name.removesuffix("_pipeline") / "README.md"
        base = descriptions(compilables()["train"]) if is_pipeline else None
        yield path, readme_of(each, interface_of(each), path.read_text("utf-8") if path.exists() else "", base)


def _rows(entries: list[tuple[str, dict[str, Any]]], texts: dict[str, str]) -> Iterator[str]:
    for name, about in entries:
        kind = about.get("type", "")
        if kind not in _INTERNAL:
            text = " ".join(texts.get(name, "").split()).replace("|", "\\|")
            yield f"| `{name}` | {_TYPES.get(kind, kind or 'artifact')} | {_default(about)} | {text} |\n"


def _default(about: dict[str, Any]) -> str:
    if "default" not in about:
        return ""
    default = about["default"]
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f"`{str(default).lower() if isinstance(default, bool) else default}`" if default != "" else "empty"


def _returned(documented: Any, inputs: dict[str, str]) -> dict[str, str]:
    """Return the descriptions of outputs: an artifact is described as an argument, values under Returns."""
    if documented.returns is None:
        return inputs
    name, text = documented.returns.type_name, documented.returns.description or ""
    lines = (f"{name}: {text}" if name else text).splitlines()
    found: dict[str, str] = {}
    current = "Output"
    for line in lines:
        word, colon, rest = line.strip().partition(": ")
        if colon and word.isidentifier():
            current, line = word, rest
        found[current] = f"{found.get(current, '')} {line.strip()}".strip()
    return {**inputs, **found}


def _name(compilable: Any) -> str:
    return str(compilable.name).replace("-", "_")


def _docstring(compilable: Any) -> str:
    function = getattr(compilable, "python_func", None) or compilable.pipeline_func
    return str(function.__doc__ or "")


if __name__ == "__main__":
    for target, text in readmes():
        target.write_text(text, "utf-8")
