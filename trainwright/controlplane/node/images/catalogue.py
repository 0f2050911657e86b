"""Which environment of this machine runs an image: `images.yaml` in the cluster's home, and the images that every node knows.

Images themselves are not run: a container of one gets the programs, command and variables that its environment has instead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from trainwright.controlplane.node.images.images_file import ImageEnvironment, ImagesFileError, parse_images_file
from trainwright.controlplane.node.images.references import InvalidReference, parse_reference

_INITIALIZER = ("python", "-m", "trainwright.initializers")
_KNOWN = (
    # The target is explicit, so that a node without isolation replaces it by the mounted folder.
    ImageEnvironment(
        "ghcr.io/kubeflow/trainer/dataset-initializer", command=(*_INITIALIZER, "dataset", "--target", "/workspace/dataset")
    ),
    ImageEnvironment(
        "ghcr.io/kubeflow/trainer/model-initializer", command=(*_INITIALIZER, "model", "--target", "/workspace/model")
    ),
)
_Version = tuple[int, int, int]


@dataclass
class ImageCatalogue:
    """The images of a node. `file` is read when it is first needed and again when it has changed; it may be missing. Thread-safe."""

    file: Path
    _entries: tuple[ImageEnvironment, ...] = field(default=(), init=False)
    _version: _Version | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def find(self, image: str) -> ImageEnvironment | None:
        """Return the first entry of the file that matches the image, else that of an image that every node knows, else None.

        Raises ImagesFileError if the file is invalid, or the entry's environment does not exist.
        """
        written = {image, *_other_names(image)}
        for entry in (*self._read(), *_KNOWN):
            if any(fnmatchcase(name, entry.image) for name in written):
                self._check_environment(entry)
                return entry
        return None

    def user_of(self, image: str) -> int | None:
        """Return the user that an image names; None if it is not known, or the file is invalid, which its pod is told of."""
        try:
            found = self.find(image)
        except ImagesFileError:
            return None
        return found.user if found is not None else None

    def _read(self) -> tuple[ImageEnvironment, ...]:
        with self._lock:
            version = self._current_version()
            if version is None:
                self._entries = ()
            elif version != self._version:
                self._entries = parse_images_file(self.file)
            self._version = version  # not reached with an invalid file, which is read again and reported each time
            return self._entries

    def _current_version(self) -> _Version | None:
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _check_environment(self, entry: ImageEnvironment) -> None:
        if entry.environment is not None and not (entry.environment / "bin").is_dir():
            problem = f"{entry.environment} has no folder bin; name a virtual environment or another prefix with programs"
            raise ImagesFileError(self.file, f"{entry.where}.environment", problem)


def _other_names(image: str) -> set[str]:
    """Return the other ways to write an image that patterns may match: in full, as short as possible, and without tag and digest."""
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return set()
    short = reference.name.removeprefix("docker.io/").removeprefix("library/")
    ending = f"{':' + reference.tag if reference.tag else ''}{'@' + reference.digest if reference.digest else ''}"
    return {name + end for name in (reference.name, short) for end in ("", ending)}
