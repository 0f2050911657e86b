"""Which environment of this machine runs an image: the files of the cluster's home, and the images that every node knows.

Images themselves are not run: a container of one gets the programs, command and variables that its environment has instead.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from trainwright.controlplane.environments import EnvironmentDefinition, EnvironmentsFileError, EnvironmentStore
from trainwright.controlplane.environments.definition import FILE_NAME, bundled_environments, environments_of
from trainwright.controlplane.node.images.images_file import ImageEnvironment, ImagesFileError, parse_images_file
from trainwright.controlplane.node.images.read_file import FileReader
from trainwright.controlplane.node.images.references import InvalidReference, parse_reference
from trainwright.controlplane.node.volumes.references import ConfigError
from trainwright.text.suggest import suggest

_INITIALIZER = ("python", "-m", "trainwright.initializers")
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
        definitions = self._read_definitions()
        for entry in self._images.read():
            if _matches(entry.image, names):
                entry = self._with_definition(entry, definitions) if entry.environment_name else entry
                self._check_environment(entry)
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
        except ConfigError:
            return None
        return found.user if found is not None else None

    def _read_definitions(self) -> tuple[EnvironmentDefinition, ...]:
        try:
            return self._definitions.read()
        except EnvironmentsFileError as error:
            raise ConfigError(str(error)) from error

    def _with_definition(self, entry: ImageEnvironment, definitions: tuple[EnvironmentDefinition, ...]) -> ImageEnvironment:
        known = {definition.name: definition for definition in definitions}
        if (definition := known.get(entry.environment_name)) is None:
            problem = f"no environment is named {entry.environment_name!r}; {suggest(entry.environment_name, list(known))}"
            raise ImagesFileError(self._images.file, f"{entry.where}.environment", problem)
        return self._defined(entry, definition)

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

    def _check_environment(self, entry: ImageEnvironment) -> None:
        if entry.environment is not None and entry.definition is None and not (entry.environment / "bin").is_dir():
            problem = f"{entry.environment} has no folder bin; name a virtual environment or another prefix with programs"
            raise ImagesFileError(self._images.file, f"{entry.where}.environment", problem)


def _matches(pattern: str, names: set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _other_names(image: str) -> set[str]:
    """Return the other ways to write an image that patterns may match: in full, as short as possible, and without tag and digest."""
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return set()
    short = reference.name.removeprefix("docker.io/").removeprefix("library/")
    ending = f"{':' + reference.tag if reference.tag else ''}{'@' + reference.digest if reference.digest else ''}"
    return {name + end for name in (reference.name, short) for end in ("", ending)}
