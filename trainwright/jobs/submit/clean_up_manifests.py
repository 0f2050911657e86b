"""A CronJob that suspends the jobs of a namespace whose waiting step is gone, with the account and the role that it needs. Pure.

For clusters with Trainer's manager, which watches no leases. `trainwright rbac --clean-up` prints it, and the chart installs it.
"""

from __future__ import annotations

from trainwright.api.kinds import JOBSET, POD, TRAINJOB
from trainwright.api.objects import Obj
from trainwright.jobs.submit.rbac import CALLS_OF, ApiCall
from trainwright.submission.mode import Mode

NAME = "trainwright-clean-up"
SCHEDULE = "*/5 * * * *"
"""Half of the lease of a pipeline's step, so that a job of a step that is gone runs for 15 minutes at most."""
_DEADLINE_SECONDS = 240
_TMP = "/tmp"  # noqa: S108  a volume of the pod
_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}


def clean_up_calls(mode: Mode) -> tuple[ApiCall, ...]:
    """Return the calls of `trainwright clean --abandoned` in the namespace. Raises KeyError for another mode."""
    jobs = {Mode.trainjob: (TRAINJOB,), Mode.jobset: (JOBSET,), Mode.auto: (TRAINJOB, JOBSET)}[mode]
    wanted = {
        *((verb, kind) for kind in jobs for verb in ("get", "list", "patch")),
        ("get", JOBSET),
        ("list", POD),
    }
    return tuple(call for call in CALLS_OF[mode] if (call.verb, call.kind) in wanted and not call.subresource)


def clean_up_manifests(namespace: str, mode: Mode, image: str) -> list[Obj]:
    """Return the account, and the CronJobs with the image of the launcher: one for each kind of job. Raises KeyError for another mode.

    The role is that of `clean_up_calls`.
    """
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": namespace}}
    modes = (Mode.trainjob, Mode.jobset) if mode is Mode.auto else (mode,)
    return [account, *(_cron_job(namespace, each, image) for each in modes)]


def _cron_job(namespace: str, mode: Mode, image: str) -> Obj:
    container = {
        "name": "clean",
        "image": image,
        "command": ["trainwright", "clean"],
        "args": ["--abandoned", "--yes", f"--namespace={namespace}", f"--submission-mode={mode}"],
        "env": [{"name": "HOME", "value": _TMP}],
        "resources": _RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": _TMP}],
    }
    pod = {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": NAME if mode is Mode.trainjob else f"{NAME}-{mode}", "namespace": namespace},
        "spec": {
            "schedule": SCHEDULE,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "spec": {"backoffLimit": 0, "activeDeadlineSeconds": _DEADLINE_SECONDS, "template": {"spec": pod}},
            },
        },
    }
