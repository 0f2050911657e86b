"""Which environment of this machine runs an image: the files of the cluster's home, and the images that every node knows.

Images themselves are not run: a container of one gets the programs, command and variables that its environment has instead. The file
`images.yaml` is read strictly: a field that is misspelt would run a container in another environment than meant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainwright.controlplane.environments import EnvironmentDefinition, EnvironmentsFileError, EnvironmentStore
from trainwright.controlplane.environments.definition import FILE_NAME, bundled_environments, environments_of
from trainwright.controlplane.node.images.references import InvalidReference, parse_reference
from trainwright.controlplane.node.volumes.references import ConfigError
from trainwright.text.suggest import suggest
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml

_INITIALIZER = ("python", "-m", "trainwright.initializers")
_FIELDS = ("image", "environment", "command", "workingDir", "env", "user", "programs", "absent")
_T = TypeVar("_T")
_Version = tuple[int, int, int]


class ImageCatalogue:
    """The images of a node: those of `images.yaml` and `environments.yaml` in its home, which may be missing, and the known ones.

    Both files are read when they are first needed, and again when they have changed. `store` has the prepared environments.
    Thread-safe.
    """

    def __init__(self, home: Path, store: EnvironmentStore):
        self._store = store
        self._images = FileReader[tuple[ImageEnvironment, ...]](home / "images.yaml", parse_images_file, ())
        self._definitions = FileReader(home / FILE_NAME, lambda _: environments_of(home), bundled_environments())

    def find(self, image: str) -> ImageEnvironment | None:
        """Return the first entry of the files that matches the image, else that of an image that every node knows, else None.

        An entry with a `definition` has an environment that may not be prepared.
        Raises ConfigError if a file is invalid, or the environment of an entry in images.yaml does not exist.
        """
        names = {image, *_other_names(image)}
        try:
            definitions = self._definitions.read()
        except EnvironmentsFileError as error:  # shown by the container, which waits until the file is fixed
            raise ConfigError(str(error)) from error
        for entry in self._images.read():
            if not _matches(entry.image, names):
                continue
            if entry.environment_name:
                known = {definition.name: definition for definition in definitions}
                if (named := known.get(entry.environment_name)) is None:
                    problem = (
                        f"no environment is named {entry.environment_name!r}; {suggest(entry.environment_name, list(known))}"
                    )
                    raise ImagesFileError(self._images.file, f"{entry.where}.environment", problem)
                return self._defined(entry, named)
            if entry.environment is not None and not (entry.environment / "bin").is_dir():
                problem = f"{entry.environment} has no folder bin; name a virtual environment or another prefix with programs"
                raise ImagesFileError(self._images.file, f"{entry.where}.environment", problem)
            return entry
        for definition in definitions:
            pattern = next((pattern for pattern in definition.images if _matches(pattern, names)), None)
            if pattern is not None and (definition.is_needed or definition.adds_to_images):
                return self._defined(ImageEnvironment(pattern, knows_user=False), definition)
        return next((entry for entry in _KNOWN if _matches(entry.image, names)), None)

    def user_of(self, image: str) -> int | None:
        """Return the user that an image names; None if it is not known, or the file is invalid, which its pod is told of."""
        try:
            found = self.find(image)
        except ConfigError:  # reported when the container starts
            return None
        return found.user if found is not None else None

    def _defined(self, entry: ImageEnvironment, definition: EnvironmentDefinition) -> ImageEnvironment:
        """Return an entry with the environment, command, variables and programs of a definition, where it says none."""
        made = definition if definition.is_needed else None
        return replace(
            entry,
            environment=self._store.place(definition) if made is not None else None,
            command=entry.command or definition.command,
            env={**definition.env, **entry.env},
            programs={**definition.programs, **entry.programs},
            definition=made,
        )


def _other_names(image: str) -> set[str]:
    """Return the other ways to write an image that patterns may match: in full, as short as possible, and without tag and digest."""
    try:
        reference = parse_reference(image)
    except InvalidReference:  # a pattern of images.yaml may still match it
        return set()
    short = reference.name.removeprefix("docker.io/").removeprefix("library/")
    ending = f"{':' + reference.tag if reference.tag else ''}{'@' + reference.digest if reference.digest else ''}"
    return {name + end for name in (reference.name, short) for end in ("", ending)}


def _matches(pattern: str, names: set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


class ImagesFileError(ConfigError):
    """The file is invalid; the message names the file, the field, and what is wrong with it."""

    def __init__(self, file: Path, where: str, problem: str):
        super().__init__(f"{file}: {where + ': ' if where else ''}{problem}")


@dataclass(frozen=True)
class ImageEnvironment:
    """What stands in for the images that match the pattern `image`; fields that are not set are this installation's.

    `environment` is a folder with `bin`; `command` is the image's entry point; `user` a numeric id.
    """

    image: str
    environment: Path | None = None
    command: tuple[str, ...] = ()
    working_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None
    where: str = ""
    """The entry's place in the file, for messages."""
    absent: bool = False
    """It is not there, and cannot be pulled."""
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs of the image, by path, and the words that replace them at the beginning of a command."""
    definition: EnvironmentDefinition | None = None
    """The environment is made when it is first needed."""
    knows_user: bool = True
    """Whether an entry without a `user` stands for an image that runs as root; else the user of the image is unknown."""
    environment_name: str = ""
    """Of a definition in environments.yaml or of the package, instead of a folder."""


_KNOWN = (
    # The target is explicit, so that a node without isolation replaces it by the mounted folder.
    ImageEnvironment(
        "ghcr.io/kubeflow/trainer/dataset-initializer",
        command=(*_INITIALIZER, "dataset", "--as-is", "--target", "/workspace/dataset"),
    ),
    ImageEnvironment(
        "ghcr.io/kubeflow/trainer/model-initializer", command=(*_INITIALIZER, "model", "--target", "/workspace/model")
    ),
)


def parse_images_file(file: Path) -> tuple[ImageEnvironment, ...]:
    """Read the file. Raises ImagesFileError, OSError."""
    try:
        documents = read_yaml(file.read_bytes(), str(file))
    except Unreadable as error:
        raise ImagesFileError(
            file, "", f"is not valid YAML: {error.problem.removeprefix('not YAML: ')} (line {error.line})"
        ) from None
    if len(documents) > 1:
        raise ImagesFileError(file, "", "expected one YAML document")
    found = documents[0] if documents else None
    if found is None:
        return ()  # an empty file, or one with comments only
    if not isinstance(found, dict) or found.keys() - {"images"}:
        unknown = sorted(found.keys() - {"images"}) if isinstance(found, dict) else []
        raise ImagesFileError(file, unknown[0] if unknown else "", "expected the one field `images`, a list")
    entries = found.get("images")
    if not isinstance(entries, list):
        raise ImagesFileError(file, "images", "expected a list")
    return tuple(_Entry(file, f"images[{number}]").parse(entry) for number, entry in enumerate(entries))


@dataclass(frozen=True)
class _Entry:
    file: Path
    where: str

    def parse(self, entry: Any) -> ImageEnvironment:
        if not isinstance(entry, dict):
            raise self._error("", "expected an object with the field `image`")
        if unknown := sorted(entry.keys() - set(_FIELDS)):
            raise self._error(unknown[0], f"unknown field; {suggest(unknown[0], _FIELDS)}")
        environment = self._text(entry, "environment")
        is_folder = "/" in environment
        image = self._text(entry, "image")
        if not image:
            raise self._error("image", "is required: the name of an image, in which * stands for any characters")
        return ImageEnvironment(
            image,
            self._absolute("environment", Path(environment).expanduser()) if is_folder else None,
            self._command(entry),
            str(self._absolute("workingDir", Path(folder))) if (folder := self._text(entry, "workingDir")) else "",
            self._variables(entry),
            self._user(entry),
            self.where,
            self._absent(entry),
            self._programs(entry),
            environment_name="" if is_folder else environment,
        )

    def _text(self, entry: dict[str, Any], name: str) -> str:
        value = entry.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._error(name, f"expected a text, got {value!r}")
        return value or ""

    def _absolute(self, name: str, path: Path) -> Path:
        if not path.is_absolute():
            raise self._error(name, f"expected an absolute path, got {path}")
        return path

    def _command(self, entry: dict[str, Any]) -> tuple[str, ...]:
        words = entry.get("command", [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or ("command" in entry and not words):
            raise self._error("command", f"expected a list of texts, the program and its arguments, got {words!r}")
        return tuple(words)

    def _programs(self, entry: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        programs = entry.get("programs", {})
        if not isinstance(programs, dict) or not all(isinstance(name, str) and name for name in programs):
            raise self._error("programs", "expected lists of texts by the programs that they replace")
        for name, words in programs.items():
            if not isinstance(words, list) or not words or not all(isinstance(word, str) and "\0" not in word for word in words):
                raise self._error(f"programs.{name}", f"expected a list of texts, a program and its arguments, got {words!r}")
        return {name: tuple(words) for name, words in programs.items()}

    def _variables(self, entry: dict[str, Any]) -> dict[str, str]:
        variables = entry.get("env", {})
        if not isinstance(variables, dict):
            raise self._error("env", "expected values by the names of variables")
        for name, value in variables.items():
            if not isinstance(value, str) or "\0" in value or not name or "=" in name:
                raise self._error(f"env.{name}", f"expected a name and a text (numbers in quotes), got {value!r}")
        return variables

    def _user(self, entry: dict[str, Any]) -> int | None:
        user = entry.get("user")
        if user is not None and (isinstance(user, bool) or not isinstance(user, int) or not 0 <= user < 2**32 - 1):
            raise self._error("user", f"expected the numeric id of a user, got {user!r}")
        return user

    def _absent(self, entry: dict[str, Any]) -> bool:
        absent = entry.get("absent", False)
        if not isinstance(absent, bool):
            raise self._error("absent", f"expected true or false, got {absent!r}")
        if absent and (more := sorted(entry.keys() - {"image", "absent"})):
            raise self._error(more[0], "an absent image has no other fields")
        return absent

    def _error(self, name: str, problem: str) -> ImagesFileError:
        return ImagesFileError(self.file, f"{self.where}.{name}" if name else self.where, problem)


class FileReader(Generic[_T]):
    """Parses `file`, which may be missing: then `absent` takes the place of its contents. Thread-safe."""

    def __init__(self, file: Path, parse: Callable[[Path], _T], absent: _T):
        self.file = file
        self._parse, self._absent = parse, absent
        self._contents = absent
        self._version: _Version | None = None
        self._lock = threading.Lock()

    def read(self) -> _T:
        """Return the contents. Raises what `parse` raises, each time while the file is invalid."""
        with self._lock:
            version: _Version | None
            try:
                found = self.file.stat()
                version = (found.st_mtime_ns, found.st_size, found.st_ino)
            except FileNotFoundError:  # both files are optional
                version = None
            if version is None:
                self._contents = self._absent
            elif version != self._version:
                self._contents = self._parse(self.file)
            self._version = version  # not reached with an invalid file
            return self._contents
