"""Renews the locks of the bundled environments: `make environment-locks`.

A lock has the versions of all packages for every platform, and the hashes of all their files on PyPI. It also has the hashes of
PyTorch's CPU builds, from the index of these builds; if that cannot be reached, from the former lock.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainwright.controlplane.environments.definition import FILE_NAME, Pin, parse_environments, read_lock
from trainwright.controlplane.environments.installer import uv_and_variables

_OPTIONS = ("--quiet", "--generate-hashes", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate")
_HEAD = "# What the environment {name} installs, by version and hash. Renew all: make environment-locks\n"
_OF_THIS_MACHINE = {"UV_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_CONSTRAINT", "UV_TORCH_BACKEND"}
"""Variables that would put packages of this machine into the locks."""


def main(names: list[str]) -> None:
    """Write the locks of the environments with these names; without names, of all."""
    folder = Path(__file__).parent
    for definition in parse_environments((folder / FILE_NAME).read_bytes(), FILE_NAME):
        if names and definition.name not in names:
            continue  # not asked for
        file = folder / "locks" / f"{definition.name}.txt"
        both = (compiled(wanted) for wanted in (definition.requirements, definition.gpu_requirements) if wanted)
        pins = {str(pin): pin for found in both for pin in found}
        for torch in {pin.version: pin for pin in pins.values() if pin.name == "torch"}.values():
            pins |= {str(pin): pin for pin in cpu_builds(torch, file)}
        file.write_text(_HEAD.format(name=definition.name) + "".join(f"{text}\n" for text in sorted(pins)), "utf-8")
        print(f"{file.name}: {len(pins)} packages")


def compiled(requirements: tuple[str, ...], *options: str) -> list[Pin]:
    """Return the lock of some requirements. Raises subprocess.CalledProcessError."""
    uv, variables = uv_and_variables()
    variables = {name: text for name, text in variables.items() if name not in _OF_THIS_MACHINE}
    command = [uv, "pip", "compile", *_OPTIONS, *options, "-"]
    done = subprocess.run(command, input="\n".join(requirements), env=variables, text=True, stdout=subprocess.PIPE, check=True)
    return read_lock(done.stdout)


def cpu_builds(torch: Pin, former: Path) -> list[Pin]:
    """Return the CPU builds of a version of PyTorch, from its index, else from the former lock. Raises SystemExit."""
    try:
        found = compiled((f"torch=={torch.version}+cpu",), "--no-deps", "--torch-backend=cpu")
    except subprocess.CalledProcessError:  # its index is another one than PyPI, and may be out of reach
        known = read_lock(former.read_text("utf-8")) if former.exists() else []
        found = [pin for pin in known if pin.name == "torch" and str(pin.version) == f"{torch.version}+cpu"]
        print(f"{former.name}: the index of PyTorch's CPU builds cannot be reached; keeps the hashes of the former lock")
    if not any(pin.hashes for pin in found):
        raise SystemExit(f"{former.name}: no hashes of torch=={torch.version}+cpu are known: try again with access to its index")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
