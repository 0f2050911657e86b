"""Which packages run which images: the environments that come with the package, and those of `environments.yaml` in a home.

Read strictly: a misspelt field would run a training in another environment than meant.
"""

from __future__ import annotations

import functools
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trainwright.controlplane.environments.lock_file import read_lock
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml

FILE_NAME = "environments.yaml"


class EnvironmentsFileError(Exception):
    """The file is invalid; the message names the file, the field, and what is wrong with it."""


def _requirement(text: str) -> str:
    try:
        Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"not a requirement of pip: {str(error).splitlines()[0]}") from None
    return text


def _lock(text: str) -> str:
    read_lock(text)
    return text


_Requirement = Annotated[str, AfterValidator(_requirement)]


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


def bundled_environments() -> tuple[EnvironmentDefinition, ...]:
    """Return the environments that come with the package, with their locks."""
    return _bundled()


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
        raise EnvironmentsFileError(f"{where}: {_first_problem(error)}") from None
    names = [definition.name for definition in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise EnvironmentsFileError(f"{where}: two environments are named {repeated[0]}")
    return found


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    environments: tuple[EnvironmentDefinition, ...] = ()


def _first_problem(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


@functools.cache
def _bundled() -> tuple[EnvironmentDefinition, ...]:
    folder = resources.files(__package__)
    found = parse_environments(folder.joinpath(FILE_NAME).read_bytes(), FILE_NAME)
    locks = {each.name: folder.joinpath("locks", f"{each.name}.txt").read_text("utf-8") for each in found}
    return tuple(each.model_copy(update={"lock": locks[each.name]}) for each in found)


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
