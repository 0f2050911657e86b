"""Settings of materialization that are neither in the TrainJob nor in its runtime."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressReports:
    """The server to which a TrainJob's pods report progress.

    `server` is the base URL (`https://host:port`), `ca_certificate` the PEM text of the CA that verifies it.
    """

    server: str
    ca_certificate: str


@dataclass(frozen=True)
class Settings:
    """`progress` is None if progress reports are disabled: upstream's default (feature gate TrainJobStatus off).

    `cache_keys`: initializers start Trainwright's data cache, which asks for a key, and not Trainer's.
    """

    progress: ProgressReports | None = None
    cache_keys: bool = False
