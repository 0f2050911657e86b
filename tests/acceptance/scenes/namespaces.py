"""Namespaces with rules: Pod Security, quotas with room, LimitRanges with defaults."""

from __future__ import annotations

from acceptance.checks import ends, job_is, says
from acceptance.scene import Scene
from acceptance.stage import submit

PROGRAM = ("--image", "{launcher}", "--command", "python3 -c \"print('ran under the rules')\"")
OWN = ("--runtime-kind", "TrainingRuntime", "--runtime", "torch-distributed")
RAN = (ends(0), says("ran under the rules"), job_is("Complete"))
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "room"},
    "spec": {"hard": {"requests.cpu": "2", "limits.memory": "4Gi", "pods": "10", "count/trainjobs.trainer.kubeflow.org": "5"}},
}
DEFAULTS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults"},
    "spec": {
        "limits": [
            {"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "64Mi"}, "default": {"memory": "512Mi"}},
        ]
    },
}

SCENES = [
    Scene(
        "Pod Security restricted",
        submit(*OWN, *PROGRAM),
        RAN,
        needs=("Pod Security",),
        own_namespace=True,
        labels=RESTRICTED,
    ),
    Scene(
        "a quota with room and defaults by a LimitRange",
        submit(*OWN, *PROGRAM),
        RAN,
        needs=("quotas", "LimitRanges"),
        own_namespace=True,
        objects=(QUOTA, DEFAULTS),
    ),
    Scene(
        "a quota that asks for limits which the job states",
        submit(*OWN, *PROGRAM, "--resources-per-node", '{"cpu": "100m", "memory": "256Mi"}'),
        RAN,
        needs=("quotas",),
        own_namespace=True,
        objects=(QUOTA,),
    ),
]
