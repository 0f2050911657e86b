"""Reads locks: the packages of an environment by version, in pip's format, with the hashes of their files.

PyTorch has several builds of one version, on several indexes. A lock has an entry for each: `torch==2.13.0`, which PyPI has, and
`torch==2.13.0+cpu`. Only one of them is given to uv, which looks hashes up by the whole version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

_HASH = re.compile(r"--hash=(sha(?:256|384|512):[0-9a-f]+)(?=\s|\\|$)")


class LockError(ValueError):
    """A lock cannot be read; the message quotes the entry."""


@dataclass(frozen=True)
class Pin:
    """One version of one package in a lock."""

    requirement: Requirement
    version: Version
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    def __str__(self) -> str:
        return " \\\n    ".join([str(self.requirement), *(f"--hash={each}" for each in self.hashes)])


def read_lock(text: str) -> list[Pin]:
    """Return the entries of a lock. Raises LockError."""
    entries = re.split(r"^(?=[^\s#])", re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    return [_pin(entry) for entry in entries if entry.strip()]


def pins_here(pins: Iterable[Pin], build: str = "") -> list[Pin]:
    """Return the entries for this machine and a build: where a package has an entry for that build, it has no other."""
    here = [pin for pin in pins if pin.requirement.marker is None or pin.requirement.marker.evaluate()]
    with_build = {pin.name for pin in here if (pin.version.local or "") == build}
    return [pin for pin in here if pin.name not in with_build or (pin.version.local or "") == build]


def pinned(requirements: Iterable[str], pins: Sequence[Pin]) -> list[str]:
    """Return the requirements that hold on this machine, with the versions of the lock."""
    versions, found = {pin.name: pin.version for pin in pins}, []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = versions.get(canonicalize_name(requirement.name))
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        found.append(str(requirement) if version is None or requirement.url else f"{requirement.name}{extras}=={version}")
    return found


def _pin(entry: str) -> Pin:
    entry = re.sub(r"(^|\s)#.*", "", entry)
    if len(hashes := _HASH.findall(entry)) != entry.count("--hash"):  # else the lock might count as one without hashes
        raise LockError(f"not hashes as in --hash=sha256:0123456789abcdef (SHA-256, 384 or 512): {' '.join(entry.split())[:200]}")
    text = re.split(r"\s+(?=--hash|\\)", entry.strip(), maxsplit=1)[0]
    try:
        requirement = Requirement(text)
        (specifier,) = requirement.specifier
        if specifier.operator == "==":
            return Pin(requirement, Version(specifier.version), tuple(hashes))
    except ValueError:  # also that of a requirement and of a version
        pass
    raise LockError(f"not a package with its version: {text}")
