"""The manifest of an export: its files with sizes, checksums and keys. It is written last, and readers use only what it lists."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from trainwright.checkpoints.errors import CheckpointError
from trainwright.jobs.request.invalid_settings import words_of

MANIFEST = "manifest.json"
LATEST = "latest.json"
BEST = "best.json"
OWNER = "owner"
"""Key of the metadata: who ran the training, as `kfp` or `airflow/DAG`. Exports of others are neither resumed from nor touched."""
LOSS_ON = "loss_on"
"""In the metadata of an export: what the training learned of conversations, `answers` or `all`, if that was set."""
USAGE = "usage"
"""Key of the metadata: what the training used, as numbers by name: node_hours, gpu_hours, cost, saved_hours; and the currency."""
MERGED = "merged"
"""Key of the metadata of a merged model: digests of the adapter's manifest and of the base model."""
HAS_ENDED = "has_ended"
"""Key of the metadata of a checkpoint whose training had no step left: true."""
VERSION: Literal[1] = 1


def _inside(path: str) -> str:
    if PurePosixPath(path).as_posix() != path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"the path {path!r} is outside of the export")
    if path == MANIFEST:
        raise ValueError("the manifest lists itself")
    return path


def _key(key: str) -> str:
    """Accept `ATTEMPT/PATH` in the export's own folder, and `../EXPORT/ATTEMPT/PATH` in that of another export of the run."""
    _inside(key.removeprefix("../"))
    return key


class ManifestFile(BaseModel):
    """`path` is where the file belongs in the checkpoint, `size` is in bytes, `sha256` is hexadecimal.

    `crc64nvme` is base64 as in S3, or empty. `key` is where the file is stored, relative to the manifest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, AfterValidator(_inside)]
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    crc64nvme: Annotated[str, Field(pattern=r"^([A-Za-z0-9+/]{11}=)?$")] = ""
    key: Annotated[str, AfterValidator(_key)]


class Manifest(BaseModel):
    """`step` is the training step, `source` names the run, `metadata` is arbitrary.

    `resumable` is False without optimizer and random states. `metrics` are those that training had logged at this step.
    `confirmed` is how the stored files were compared with what was read: checked by the store, or read back.
    `supersedes` is the digest of the manifest of an earlier export of the same step.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = VERSION
    format: str
    step: int
    source: str
    created: str
    resumable: bool = True
    confirmed: Literal["checked", "read-back"]
    supersedes: str = ""
    metrics: dict[str, float] = {}
    metadata: dict[str, Any] = {}
    files: tuple[ManifestFile, ...]

    @field_validator("files")
    @classmethod
    def _each_once(cls, files: tuple[ManifestFile, ...]) -> tuple[ManifestFile, ...]:
        if not files or len({file.path for file in files}) != len(files):
            raise ValueError("files must not be empty or contain duplicates")
        return files

    def text(self) -> bytes:
        """Serialise canonically; the digest of the export is computed from this text."""
        return (
            json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()
            + b"\n"
        )

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.text()).hexdigest()}"

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.size for file in self.files)

    @classmethod
    def parse(cls, content: bytes, where: str) -> Manifest:
        """Parse a manifest. Raises CheckpointError, which names `where`, for an invalid one or an unsupported version."""
        try:
            version = json.loads(content)["version"]
            if version != VERSION:
                raise CheckpointError(f"{where} has version {version!r}; this version of Trainwright supports version {VERSION}")
            return cls.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise CheckpointError(f"{where} is not a valid manifest: {field or 'text'}: {words_of(first)}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(f"{where} is not a valid manifest: it is not JSON with a version") from error
