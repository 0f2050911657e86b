"""A TrainJob that its runtime's policy refuses is not stored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from factories import cluster_with_runtimes, trainjob

from trainwright.api.errors import Denied
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.plane import ControlPlane


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with cluster_with_runtimes() as cluster:
        yield cluster


suspended_trainjob = partial(trainjob, suspend=True)


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
def test_trainjob_is_denied_in_the_words_of_trainers_webhook(cluster: EmbeddedCluster, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Denied) as raised:
        cluster.create(suspended_trainjob(**spec))
    denial = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
    assert raised.value.message.startswith(denial)
    assert words in raised.value.message
    assert raised.value.code == 403
    assert not cluster.list(TRAINJOB).items


@pytest.mark.medium
def test_whole_embedded_cluster_has_the_validators(nodeless: ControlPlane) -> None:
    with pytest.raises(Denied, match="must not have reserved envs"):
        nodeless.cluster.create(suspended_trainjob(trainer={"env": [{"name": "PET_NNODES", "value": "1"}]}))


def test_updates_are_validated_but_not_status_updates(cluster: EmbeddedCluster) -> None:
    cluster.create(suspended_trainjob())
    initializer = {"initializer": {"dataset": {"storageUri": "hf://a/b"}}}
    with pytest.raises(Denied):
        cluster.patch(TRAINJOB, "demo", {"spec": initializer}, "default")
    cluster.patch(TRAINJOB, "demo", {"status": {"jobsStatus": []}}, "default", subresource="status")
