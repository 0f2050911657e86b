"""Clusters for Trainer's controller: one without a node, and those of others, to which it is a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proxied_controllers import others_plane, start  # noqa: F401  fixtures
from support.running_plane import running_plane

from trainwright.embedded.plane import ControlPlane


@pytest.fixture
def nodeless(tmp_path: Path) -> Iterator[ControlPlane]:
    """Without node and scheduler: pods stay Pending until the test writes their status."""
    with running_plane(tmp_path, node=False) as control_plane:
        yield control_plane
