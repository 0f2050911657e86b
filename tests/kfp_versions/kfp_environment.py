"""Environments with one minor version of kfp each, and the programs that run in them: what the library needs, and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.client_environments import ROOT, client_environment

MINORS = {"2.16": ">=2.16.1,<2.17", "2.17": ">=2.17,<2.18"}
"""The tested minors, and which of their versions. Older ones have no `dsl.TaskConfig`, or compile wrongly: 2.15 and 2.16.0 give the
Secrets and claims of tasks in a condition or an exit handler names that do not exist there.
"""
PROGRAM_SECONDS = 120
# Arguments: the folder of the artifacts, a component, and its arguments.
LOCAL = """
import json, sys
from kfp import local
from trainwright import components
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[1], raise_on_error=True)
task = getattr(components, sys.argv[2])(**json.loads(sys.argv[3]))
print("OUTPUTS", json.dumps({name: getattr(each, "path", each) for name, each in task.outputs.items()}))
"""
Compiled = dict[str, list[Any]]
"""The documents of each compiled file, without the version of the compiler."""
VERSIONS = "import importlib.metadata as m; print(m.version('kfp'), m.version('kfp-kubernetes'), m.version('kubernetes'))"


@dataclass(frozen=True)
class KfpEnvironment:
    """A Python with one minor of kfp; `installed` is the folder of this project's unpacked wheel."""

    minor: str
    python: Path
    installed: Path

    def run(self, *arguments: str, variables: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
        """Run Python, in a folder; returns what it printed. A failure fails the test with it."""
        command = [str(self.python), "-W", "ignore", *arguments]
        passed_on = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
        # PYTHONSAFEPATH: the current folder, the tree itself, comes not before the wheel.
        env = {**passed_on, "PYTHONPATH": str(self.installed), "PYTHONSAFEPATH": "1", **(variables or {})}
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False, env=env, cwd=folder)
        assert done.returncode == 0, f"kfp {self.minor}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def run_step(self, name: str, arguments: Mapping[str, Any], folder: Path, *, kubeconfig: Path | None = None) -> LocalRun:
        """Run a component outside of a pipeline, with `kfp.local`."""
        variables = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
        printed = self.run("-c", LOCAL, str(folder / "artifacts"), name, json.dumps(arguments), variables=variables)
        found = re.search("^OUTPUTS (.*)$", printed, re.MULTILINE)
        assert found is not None, printed[-3000:]
        return LocalRun(json.loads(found[1]), printed)


@dataclass(frozen=True)
class LocalRun:
    """What a step returned, artifacts as their paths, and what it printed."""

    outputs: dict[str, Any]
    printed: str


def kfp_environment(minor: str, installed: Path) -> KfpEnvironment:
    """The environment of a minor. Raises Unavailable where it is not there and cannot be built."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    requirements = [*dependencies, f"kfp{MINORS[minor]}", f"kfp-kubernetes{MINORS[minor]}"]
    return KfpEnvironment(minor, client_environment(f"kfp-{minor.replace('.', '-')}", requirements), installed)


def read_compiled(folder: Path) -> Compiled:
    """The compiled files of a folder."""
    files = {file.name: list(yaml.safe_load_all(file.read_text("utf-8"))) for file in folder.iterdir()}
    for documents in files.values():
        assert documents[0].pop("sdkVersion").startswith("kfp-2.")
    return files
