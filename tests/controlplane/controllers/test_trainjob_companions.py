"""What a TrainJob has besides its JobSet: keys that stay, the runtime as it was, and the group that its pods are scheduled in."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from factories import trainjob
from support.waiting import eventually

from trainwright.api.errors import Forbidden, Invalid, NotFound
from trainwright.api.kinds import CONFIG_MAP, JOBSET, SECRET, TRAINJOB, Kind
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.plane import ControlPlane
from trainwright.materialize import Settings
from trainwright.trainer.trainjob import TrainJobReconciler

pytestmark = pytest.mark.medium


def create(plane: ControlPlane, runtime: str, **spec: Any) -> dict[str, Any]:
    return plane.cluster.create(trainjob(runtime=runtime, nodes=3, **spec))


def found(plane: ControlPlane, kind: Kind, name: str = "demo") -> dict[str, Any] | None:
    try:
        return plane.cluster.get(kind, name, "default")
    except NotFound:
        return None


def test_keys_are_made_once_and_the_hosts_are_known(nodeless: ControlPlane) -> None:
    create(nodeless, "deepspeed-distributed", suspend=True)
    assert eventually(lambda: found(nodeless, JOBSET) is not None)
    before = nodeless.cluster.get(SECRET, "demo-mpi-ssh-auth", "default")
    assert b64decode(before["data"]["ssh-privatekey"]).startswith(b"-----BEGIN EC PRIVATE KEY-----")
    hosts = nodeless.cluster.get(CONFIG_MAP, "demo-mpi-hostfile", "default")["data"]["hostfile"]
    assert len(hosts.splitlines()) == 3
    nodeless.cluster.patch(TRAINJOB, "demo", {"spec": {"suspend": False}}, "default")
    assert eventually(lambda: not (found(nodeless, JOBSET) or {})["spec"]["suspend"])
    assert nodeless.cluster.get(SECRET, "demo-mpi-ssh-auth", "default") == before


def test_a_job_with_the_secret_of_another_controller_needs_no_right_to_create_one(nodeless: ControlPlane) -> None:
    class WithoutSecrets(EmbeddedCluster):
        def create(self, obj: Any, **options: Any) -> Any:
            if obj["kind"] == "Secret":
                raise Forbidden("secrets is forbidden")
            return super().create(obj, **options)

    create(nodeless, "deepspeed-distributed", suspend=True)
    assert eventually(lambda: found(nodeless, JOBSET) is not None)
    limited = TrainJobReconciler(WithoutSecrets(nodeless.cluster._server), Settings, bundled=True)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"}}
    limited._apply(nodeless.cluster.get(TRAINJOB, "demo", "default"), secret)
    other = nodeless.cluster.create(trainjob("other", managedBy="kueue.x-k8s.io/multikueue"))
    with pytest.raises(Forbidden):
        limited._apply(other, secret)


def test_a_job_with_claims_of_its_own_that_was_created_suspended_is_resumed(nodeless: ControlPlane) -> None:
    """JobSet adds a `retentionPolicy` to `volumeClaimPolicies`, which is immutable: Trainer 2.3 applies its list again and fails."""
    create(nodeless, "torchtune-llama3.2-1b", suspend=True)
    jobset = eventually(lambda: found(nodeless, JOBSET))
    assert jobset["spec"]["volumeClaimPolicies"][0]["retentionPolicy"]
    nodeless.cluster.patch(TRAINJOB, "demo", {"spec": {"suspend": False}}, "default")
    assert eventually(lambda: not (found(nodeless, JOBSET) or {})["spec"]["suspend"])


def test_a_change_that_the_jobset_cannot_take_is_refused_at_once(nodeless: ControlPlane) -> None:
    create(nodeless, "torch-distributed", suspend=True)
    assert eventually(lambda: found(nodeless, JOBSET) is not None)
    with pytest.raises(Invalid, match=r"spec\.trainer: Forbidden"):
        nodeless.cluster.patch(TRAINJOB, "demo", {"spec": {"trainer": None}}, "default")
    selector = {"nodeSelector": {"pool": "a"}}
    job = {"name": "node", "template": {"spec": {"template": {"spec": selector}}}}
    patch = {"manager": "example.com/queue", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    nodeless.cluster.patch(TRAINJOB, "demo", {"spec": {"runtimePatches": [patch], "suspend": False}}, "default")
    assert eventually(lambda: "pool" in str(found(nodeless, JOBSET)))
    assert eventually(lambda: not (found(nodeless, JOBSET) or {})["spec"]["suspend"])
