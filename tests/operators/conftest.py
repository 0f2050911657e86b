"""Operators are tested on a cluster without controllers, which every hook connects to."""

from __future__ import annotations

import pytest
from support.cluster_without_controllers import add_pod, cluster, set_status  # noqa: F401  fixtures
from support.export_fixtures import export, root  # noqa: F401  fixtures

from trainwright.controlplane.embedded import EmbeddedCluster


@pytest.fixture
def connected(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> EmbeddedCluster:  # noqa: F811
    from trainwright.operators.hook import TrainwrightHook

    monkeypatch.setattr(cluster, "default_namespace", "default", raising=False)
    monkeypatch.setattr(TrainwrightHook, "connect", lambda _hook, _settings: cluster)
    return cluster
