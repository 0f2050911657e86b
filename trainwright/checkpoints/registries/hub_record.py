"""`trainwright.json` in a repository of the Hub: which export its files come from, and which files those are.

It is in the files, not in the commit's message, so that it survives a squashed history, a copy and a download of the repository.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict, ValidationError

RECORD = "trainwright.json"
MAX_RECORD = 16 * 1024 * 1024
"""Bytes: a hundred thousand files."""


class HubRecord(BaseModel):
    """`manifest` is the digest of the export's manifest, `files` are the paths that were uploaded, without this file and the card.

    `card` is the Git digest of the model card, by which an edited one is recognised; empty if another's was left in place.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    manifest: str
    step: int = 0
    run: str = ""
    trainjob: str = ""
    training_state: bool = False
    files: tuple[str, ...] = ()
    card: str = ""

    def text(self) -> bytes:
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> HubRecord | None:
        """Return the record, or None for a file that is no record."""
        try:
            return cls.model_validate_json(content)
        except ValidationError:
            return None


def git_digest(content: bytes) -> str:
    """Return the digest by which Git, and so the Hub, names a file that is not in LFS."""
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()
