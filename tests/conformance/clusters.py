"""The cluster that conformance is measured on: the embedded one, or any other whose kubeconfig TRAINWRIGHT_TEST_KUBECONFIG names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.controlplane.apiserver.store import Store
from trainwright.controlplane.gates import FeatureGates
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane

VARIABLE = "TRAINWRIGHT_TEST_KUBECONFIG"


def other_cluster() -> Path | None:
    """The kubeconfig of the cluster that was asked for instead of the embedded one."""
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    path = Path(given).expanduser().absolute()
    assert path.is_file(), f"{VARIABLE} names {path}, which is no file"
    return path


@contextmanager
def cluster(folder: Path, *, node: bool) -> Iterator[Path]:
    """A running cluster's kubeconfig. `node` tells whether the embedded one runs pods; recordings were made without."""
    other = other_cluster()
    if other is not None:
        yield other
        return
    home = Home(folder / "home")
    home.make()
    Store(home.database).close()  # opened once before: the first versions are forgotten, as on a cluster that has lived a while
    plane = ControlPlane(home, gates=FeatureGates(), node=node)
    plane.start()
    try:
        yield home.kubeconfig
    finally:
        plane.stop(2)
