"""What a source has delivered. It imports no source, so that every source can import it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Fetched:
    """`paths` are relative to the target. `sha256` has the digests by path that were verified on the written files.

    `details` go to the receipt: what exactly was taken, if the URI does not say it.
    """

    paths: list[Path]
    sha256: Mapping[Path, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
