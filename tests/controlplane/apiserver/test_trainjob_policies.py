"""A TrainJob that its runtime's policy refuses is not stored."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.errors import Denied
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.runtimes import bundled_runtimes


@pytest.fixture
def cluster() -> EmbeddedCluster:
    cluster = EmbeddedCluster(ResourceServer(Store(":memory:")))
    for runtime in bundled_runtimes():
        cluster.create(runtime)
    return cluster


def trainjob(**spec: Any) -> dict[str, Any]:
    whole = {"runtimeRef": {"name": "torch-distributed"}, "suspend": True, **spec}
    metadata = {"name": "demo", "namespace": "default"}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": whole}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"trainer": {"env": [{"name": "PET_NNODES", "value": "1"}]}},
            "spec.trainer.env: Invalid value: must not have reserved envs",
        ),
        ({"initializer": {"model": {"storageUri": "hf://a/b"}}}, "must have model-initializer job"),
    ],
)
def test_it_is_denied_as_by_trainers_webhook(cluster: EmbeddedCluster, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Denied) as raised:
        cluster.create(trainjob(**spec))
    denial = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
    assert raised.value.message.startswith(denial)
    assert words in raised.value.message
    assert raised.value.code == 403
    assert not cluster.list(TRAINJOB).items


def test_it_is_denied_in_an_update_too_and_status_is_not_asked(cluster: EmbeddedCluster) -> None:
    cluster.create(trainjob())
    initializer = {"initializer": {"dataset": {"storageUri": "hf://a/b"}}}
    with pytest.raises(Denied):
        cluster.patch(TRAINJOB, "demo", {"spec": initializer}, "default")
    cluster.patch(TRAINJOB, "demo", {"status": {"jobsStatus": []}}, "default", subresource="status")
