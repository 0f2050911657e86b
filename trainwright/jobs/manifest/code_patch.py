"""Mounts packed code in the training containers, from ConfigMaps. Pure."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.manifest.resolved_request import training_jobs
from trainwright.jobs.manifest.runtime_patch import runtime_patch

PATCH_MANAGER = "trainwright.dev/code"
MOUNT = "/trainwright-code"
_VOLUME = "trainwright-code"


def code_patch(trainjob: str, code: PackedCode, runtime: Obj) -> Obj:
    """Return the runtime patch that mounts the code in the training containers of the named job."""
    sources = [{"configMap": {"name": name}} for name in config_map_names(trainjob, code)]
    volume = {"name": _VOLUME, "projected": {"sources": sources}}
    mount = {"name": _VOLUME, "mountPath": MOUNT, "readOnly": True}
    pod = {"volumes": [volume], "containers": [{"name": names.NODE, "volumeMounts": [mount]}]}
    return runtime_patch(PATCH_MANAGER, {job["name"]: pod for job in training_jobs(runtime)})


def config_map_names(trainjob: str, code: PackedCode) -> list[str]:
    """Return the names of the ConfigMaps with the code of a job, in the order of its parts."""
    return [f"{trainjob}-code-{code.digest[:8]}-{number}" for number in range(len(code.parts))]
