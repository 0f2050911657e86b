"""The packages in the form in which they install, as links: `components/train/` is `trainwright/components/train_component/` there.

The edges lie outside `trainwright/` in the tree and inside it once installed; tools that go by the names of packages read this one.
As a program: creates this tree in the given folder, replacing an earlier one.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def link_installed_tree(target: Path) -> None:
    """Link every module of every declared package to where it is installed below `target`."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    for package in setuptools["packages"]:
        folder = ROOT / setuptools["package-dir"].get(package, package.replace(".", "/"))
        place = target.joinpath(*package.split("."))
        place.mkdir(parents=True, exist_ok=True)
        for module in [*folder.glob("*.py"), *folder.glob("py.typed")]:
            (place / module.name).symlink_to(module)


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    link_installed_tree(Path(sys.argv[1]))
