"""The rules of each policy, one table or one small case each; the recordings say that they are the real ones."""

from __future__ import annotations

import subprocess

import pytest
from built_objects import pod_spec_of, refused
from factories import replicated_job, runtime, trainjob

from trainwright.materialize import materialize
from trainwright.materialize.policies.flux import FluxJob, entrypoint_script, init_script

FLUX = FluxJob("demo", "ns", nodes=3, tasks=2, gpus=1, device="eth0", queue_policy="fcfs")


@pytest.mark.parametrize("script", [init_script(FLUX), entrypoint_script(FLUX)])
def test_flux_scripts_are_shell(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


# What no policy can mend


def test_ports_that_would_overwrite_each_other_are_refused() -> None:
    two = [{"name": "node", "image": "i", "ports": [{"containerPort": 8080}, {"containerPort": 9090}]}]
    [field] = refused(
        {}, runtime("rt", replicated_job("node", step="trainer", pod_spec={"containers": two}), policy={"torch": {}})
    )
    assert field == "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].ports"
    named_ports = [{"name": "node", "image": "i", "ports": [{"containerPort": 8080, "name": "a"}, {"containerPort": 9090}]}]
    job = replicated_job("node", step="trainer", pod_spec={"containers": named_ports})
    built = materialize(trainjob(trainer={}), runtime("rt", job, policy={"torch": {}}))
    assert [port["containerPort"] for port in pod_spec_of(built)["containers"][0]["ports"]] == [8080, 29500]


def test_a_variable_whose_source_gets_lost_is_refused() -> None:
    source = {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}
    assert refused({"env": [{"name": "A", "valueFrom": source}]}, runtime(policy={"torch": {}})) == {
        "spec.trainer.env[0].valueFrom"
    }
