"""Renews the locks of the bundled environments: `make environment-locks`.

A lock has the versions of all packages for every platform, as constraints. It has no hashes, because PyTorch's builds for CPU and GPU
have one version and several files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainwright.controlplane.environments.definition import FILE_NAME, parse_environments
from trainwright.controlplane.environments.installer import uv_and_variables

_OPTIONS = ("--quiet", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate", "--no-emit-find-links")
_HEAD = "# What the environment {name} installs, by version. Renew all: make environment-locks\n"


def main(names: list[str]) -> None:
    """Write the locks of the environments with these names; without names, of all."""
    folder = Path(__file__).parent
    for definition in parse_environments((folder / FILE_NAME).read_bytes(), FILE_NAME):
        if names and definition.name not in names:
            continue
        texts = [compiled(wanted) for wanted in (definition.requirements, definition.gpu_requirements) if wanted]
        lines = sorted({line for text in texts for line in text.splitlines()})
        file = folder / "locks" / f"{definition.name}.txt"
        file.write_text(_HEAD.format(name=definition.name) + "\n".join(lines) + "\n", "utf-8")
        print(f"{file.name}: {len(lines)} packages")


def compiled(requirements: tuple[str, ...]) -> str:
    """Return the lock of some requirements. Raises subprocess.CalledProcessError."""
    uv, variables = uv_and_variables()
    command = [uv, "pip", "compile", *_OPTIONS, "--no-emit-index-url", "-"]
    done = subprocess.run(command, input="\n".join(requirements), env=variables, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
