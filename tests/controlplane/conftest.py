"""A whole control plane in this process, with a node that runs real processes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import urllib3
import yaml
from support.proxied_controllers import others_plane, start  # noqa: F401  fixtures
from support.running_plane import running_plane

from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.embedded.home import Home
from trainwright.embedded.plane import ControlPlane


@pytest.fixture(autouse=True)
def nobody_changes_what_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads shares the store's objects: at the end of a store each is still what was written."""
    close = Store.close

    def checked(self: Store) -> None:
        for collection in list(self._objects._collections.values()):
            for record in collection.all():
                assert record.object == orjson.loads(record.data), f"somebody changed {record.key}"
        close(self)

    monkeypatch.setattr(Store, "close", checked)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with running_plane(tmp_path) as control_plane:
        yield control_plane


@pytest.fixture
def nodeless(tmp_path: Path) -> Iterator[ControlPlane]:
    """Without node and scheduler: pods stay Pending until the test writes their status."""
    with running_plane(tmp_path, node=False) as control_plane:
        yield control_plane


@pytest.fixture
def metrics(tmp_path: Path) -> Callable[[], str]:
    """What `/metrics` of `plane` or `nodeless` answers."""

    def get() -> str:
        kubeconfig = yaml.safe_load(Home(tmp_path / "home").kubeconfig.read_text())
        token, server = kubeconfig["users"][0]["user"]["token"], kubeconfig["clusters"][0]["cluster"]["server"]
        authority = base64.b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        http = urllib3.PoolManager(ca_cert_data=authority)
        answer = http.request("GET", f"{server}/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status == 200
        return answer.data.decode()

    return get
