"""The table of layers in docs/concepts.md: their order from the contracts in pyproject.toml, what each is from its docstring."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parent / "concepts.md"
_BEGIN, _END = (
    "<!-- Written by `make edges` from pyproject.toml and the packages. -->\n",
    "<!-- End of what `make edges` writes. -->",
)


def with_layers(text: str, root: Path) -> str:
    """Return the text of the page with the table of the packages of this checkout, the lowest layer last."""
    before, _, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{PAGE.name}: no place for the table between {_BEGIN.strip()!r} and {_END!r}")
    contracts = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == ["trainwright"])
    return f"{before}{_BEGIN}| layer | what it is |\n|---|---|\n{''.join(_rows(layers, root / 'trainwright'))}{_END}{after}"


def _rows(layers: list[str], library: Path) -> Iterator[str]:
    for name in [name.strip() for layer in layers for name in layer.split("|")]:
        module = library / name / "__init__.py" if (library / name).is_dir() else library / f"{name}.py"
        docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
        first = re.split(r"(?<=\.) ", " ".join(docstring.split("\n\n")[0].split()), maxsplit=1)[0]
        yield f"| `{name}` | {first} |\n"
