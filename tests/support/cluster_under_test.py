"""Clusters to measure on: the embedded one, or for conformance any other whose kubeconfig TRAINWRIGHT_TEST_KUBECONFIG names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from support.running_plane import running_plane
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates

VARIABLE = "TRAINWRIGHT_TEST_KUBECONFIG"
_GATES = FeatureGates()


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
    """The kubeconfig of the cluster that conformance is measured on. `node`: whether the embedded one runs pods."""
    other = other_cluster()
    if other is not None:
        yield other
        return
    with embedded(folder, node=node) as kubeconfig:
        yield kubeconfig


@contextmanager
def embedded(folder: Path, *, node: bool, gates: FeatureGates = _GATES) -> Iterator[Path]:
    """An embedded cluster's kubeconfig. Its first versions are forgotten, as on a cluster that has lived for a while."""
    home = Home(folder / "home")
    home.make()
    Store(home.database).close()
    with running_plane(folder, gates=gates, node=node):
        yield home.kubeconfig


def kubeconfig_of_account(admin: Path, folder: Path, namespace: str, account: str) -> Path:
    """A kubeconfig with a token of a service account, which kubectl asks for with the administrator's."""
    config = yaml.safe_load(admin.read_text("utf-8"))
    command = ["kubectl", "--kubeconfig", str(admin), "create", "token", account, "-n", namespace]
    token = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    config["users"][0]["user"] = {"token": token}
    path = folder / f"{account}.kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(config), "utf-8")
    return path
