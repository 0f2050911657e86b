"""What materialization needs to know that is neither in the TrainJob nor in its runtime."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressReports:
    """Where a TrainJob's pods report their progress.

    `server` is the base URL (`https://host:port`), `ca_certificate` the PEM text that its certificate is checked with.
    """

    server: str
    ca_certificate: str


@dataclass(frozen=True)
class Settings:
    """`progress` is None where reports are not taken: upstream's default (feature gate TrainJobStatus off)."""

    progress: ProgressReports | None = None
