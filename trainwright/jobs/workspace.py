"""The volume that initializers, nodes and exporter share, as one argument."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

_CLAIM = re.compile(r"^pvc://([a-z0-9]([-a-z0-9.]*[a-z0-9])?)(?:/(.*))?")


class Workspace(BaseModel):
    """An existing claim, and a folder in it."""

    model_config = ConfigDict(frozen=True)

    claim: str
    path: str = ""

    @classmethod
    def parse(cls, uri: str, field: str = "workspace") -> Workspace:
        """From `pvc://CLAIM` or `pvc://CLAIM/FOLDER`. Raises ValueError naming the field."""
        match = _CLAIM.fullmatch(uri)
        path = (match[3] or "").strip("/") if match else ""
        if not match or ".." in path.split("/"):
            raise ValueError(f"{field}: {uri!r} is not of the form pvc://CLAIM or pvc://CLAIM/FOLDER")
        return cls(claim=match[1], path=path)
