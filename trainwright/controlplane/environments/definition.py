"""Which packages run which images: the environments that come with the package, and those of `environments.yaml` in a home.

Read strictly: a misspelt field would run a training in another environment than meant. A lock has the packages of an environment by
version, in pip's format, with the hashes of their files. PyTorch has several builds of one version, on several indexes. A lock has an
entry for each: `torch==2.13.0`, which PyPI has, and `torch==2.13.0+cpu`. Only one of them is given to uv, which looks hashes up by the
whole version.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml

FILE_NAME = "environments.yaml"
_HASH = re.compile(r"--hash=(sha(?:256|384|512):[0-9a-f]+)(?=\s|\\|$)")


class EnvironmentsFileError(Exception):
    """The file is invalid; the message names the file, the field, and what is wrong with it."""


class EnvironmentDefinition(BaseModel):
    """An environment, and the images that run in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$")]
    images: tuple[str, ...] = ()
    """Patterns, as in images.yaml."""
    requirements: Annotated[tuple[_Requirement, ...], Field(min_length=1)]
    gpu_requirements: tuple[_Requirement, ...] = ()
    """Take the place of `requirements` on a machine with an NVIDIA GPU."""
    mebibytes: Annotated[int, Field(gt=0)] = 1500
    """About the size of the environment without a GPU, which must be free on the disk."""
    unless_installed: tuple[str, ...] = ()
    """Distributions; where the cluster's own environment has them all, it runs the images itself."""
    includes_trainwright: bool = False
    """The package `trainwright` can be imported, as in the images of this project."""
    command: tuple[str, ...] = ()
    programs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What runs in the place of programs that the images have and the environment does not: commands by path."""
    env: dict[str, str] = Field(default_factory=dict)
    lock: Annotated[str, AfterValidator(_lock), Field(exclude=True)] = ""
    """Versions of all packages, in pip's format; empty if they are found when the environment is made.

    With hashes, only files that have one of them are installed.
    """
    from_source: tuple[str, ...] = ()
    """Packages that are built when they are installed; where the lock has hashes, all others are wheels."""

    @property
    def is_needed(self) -> bool:
        """Whether the cluster's own environment cannot run the images."""
        return not self.unless_installed or not all(map(_is_installed, self.unless_installed))

    @property
    def adds_to_images(self) -> bool:
        """Whether the images have a command, programs or variables, in the cluster's own environment too."""
        return bool(self.command or self.programs or self.env)


def _lock(text: str) -> str:
    read_lock(text)
    return text


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:  # the environment is made for it
        return False
    return True


@functools.cache
def bundled_environments() -> tuple[EnvironmentDefinition, ...]:
    """Return the environments that come with the package, with their locks."""
    folder = resources.files(__package__)
    found = parse_environments(folder.joinpath(FILE_NAME).read_bytes(), FILE_NAME)
    locks = {each.name: folder.joinpath("locks", f"{each.name}.txt").read_text("utf-8") for each in found}
    return tuple(each.model_copy(update={"lock": locks[each.name]}) for each in found)


def environments_of(home: Path) -> tuple[EnvironmentDefinition, ...]:
    """Return the environments of a cluster: those of its file, which replace bundled ones with their name, then the others.

    Raises EnvironmentsFileError, OSError.
    """
    file = home / FILE_NAME
    own = parse_environments(file.read_bytes(), str(file)) if file.exists() else ()
    names = {definition.name for definition in own}
    return (*own, *(definition for definition in bundled_environments() if definition.name not in names))


def parse_environments(content: bytes, where: str) -> tuple[EnvironmentDefinition, ...]:
    """Parse a file of environments; `where` names it in messages. Raises EnvironmentsFileError."""
    try:
        documents = read_yaml(content, where)
    except Unreadable as error:
        raise EnvironmentsFileError(f"{where}: not valid YAML (line {error.line}): {error.problem}") from None
    if len(documents) > 1:
        raise EnvironmentsFileError(f"{where}: expected one YAML document")
    try:
        found = _File.model_validate(documents[0] if documents else {}).environments
    except ValidationError as error:
        first: Any = error.errors()[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        raise EnvironmentsFileError(f"{where}: {field}: {first['msg'].removeprefix('Value error, ')}") from None
    names = [definition.name for definition in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise EnvironmentsFileError(f"{where}: two environments are named {repeated[0]}")
    return found


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    environments: tuple[EnvironmentDefinition, ...] = ()


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
            continue  # not for this machine
        version = versions.get(canonicalize_name(requirement.name))
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        found.append(str(requirement) if version is None or requirement.url else f"{requirement.name}{extras}=={version}")
    return found


def _requirement(text: str) -> str:
    try:
        Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"not a requirement of pip: {str(error).splitlines()[0]}") from None
    return text


_Requirement = Annotated[str, AfterValidator(_requirement)]
