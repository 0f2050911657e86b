"""The MPI policy: a launcher that connects to its workers over ssh, with a hostfile that lists them.

Unlike other policies it identifies the replicated jobs by the names `launcher` and `node`, not by their step label.
Source: Trainer's mpi plugin (reference sections 2.13, 4.2 rules 23 and 24).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft, PodSet, owned_object, upsert_env, upsert_mount, upsert_volume
from trainwright.materialize.resources import gpu_count, host_names, resources_for_process_count, value_variable

LAUNCHER = "launcher"
OPEN_MPI = "OpenMPI"
_HOSTFILE_FOLDER = "/etc/mpi"
_HOSTFILE = "hostfile"
_HOSTFILE_VOLUME = "mpi-hostfile"
_PRIVATE, _PUBLIC = "ssh-privatekey", "ssh-publickey"
RESERVED = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)


class MpiPolicy:
    name = "mpi"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        mpi = draft.policy("mpi")
        if mpi is None:
            return
        trainer = draft.trainer or {}
        if mpi.get("mpiImplementation") != OPEN_MPI:
            message = f'Unsupported value: "{mpi.get("mpiImplementation") or ""}": supported values: "{OPEN_MPI}"'
            yield Problem("spec.mlPolicy.mpi.mpiImplementation", message, "FieldValueNotSupported")
        missing = [name for name in (LAUNCHER, names.NODE) if draft.pods_named(name) is None]
        if missing and mpi.get("runLauncherAsNode") and (trainer.get("numNodes") or 0) > 1:
            message = f"Invalid value: {trainer['numNodes']}: must be 1, since the MPI runtime has no job {' or '.join(missing)}"
            yield Problem("spec.trainer.numNodes", message)
        reserved = sorted({variable["name"] for variable in trainer.get("env") or []} & set(RESERVED))
        if reserved:
            yield Problem("spec.trainer.env", f"Invalid value: must not have reserved envs, invalid envs configured: {reserved}")

    def enforce_ml_policy(self, draft: Draft) -> None:
        mpi = draft.policy("mpi")
        if mpi is None:
            return
        workers, launcher = draft.pods_named(names.NODE), draft.pods_named(LAUNCHER)
        nodes = (draft.trainer or {}).get("numNodes")
        if workers is not None and nodes is not None:
            workers.count = max(nodes - 1, 1) if mpi.get("runLauncherAsNode") else nodes
        for pods in (workers, launcher):
            if pods is not None:
                _mount_keys(draft, pods, mpi["sshAuthMountPath"])
        if launcher is not None:
            _mount_hostfile(draft, launcher, _slots(draft, mpi))

    def build(self, draft: Draft) -> None:
        mpi = draft.policy("mpi")
        if mpi is None:
            return
        slots = _slots(draft, mpi)
        lines: list[str] = []
        for pods in draft.pod_sets:
            if pods.name == names.NODE or (pods.name == LAUNCHER and mpi.get("runLauncherAsNode")):
                lines.extend(f"{host} slots={slots}\n" for host in host_names(draft, pods))
        hostfile = owned_object(draft, "v1", "ConfigMap", _hostfile_name(draft))
        draft.companions += [_secret(draft), hostfile | {"data": {_HOSTFILE: "".join(lines)}}]


def _mount_keys(draft: Draft, pods: PodSet, folder: str) -> None:
    items = [
        {"key": _PRIVATE, "path": "id_rsa", "mode": 0o640},
        {"key": _PUBLIC, "path": "id_rsa.pub", "mode": 0o644},
        {"key": _PUBLIC, "path": "authorized_keys", "mode": 0o644},
    ]
    secret = {"secretName": _secret_name(draft), "defaultMode": 0o400, "items": items}
    upsert_volume(pods.pod_spec, {"name": names.SSH_VOLUME, "secret": secret})
    container = pods.container(names.NODE)
    if container is not None:
        upsert_mount(container, {"name": names.SSH_VOLUME, "mountPath": folder})


def _mount_hostfile(draft: Draft, launcher: PodSet, slots: int) -> None:
    source = {"name": _hostfile_name(draft), "items": [{"key": _HOSTFILE, "path": _HOSTFILE, "mode": 0o444}]}
    upsert_volume(launcher.pod_spec, {"name": _HOSTFILE_VOLUME, "configMap": source})
    container = launcher.container(names.NODE)
    if container is None:
        return
    upsert_mount(container, {"name": _HOSTFILE_VOLUME, "mountPath": _HOSTFILE_FOLDER})
    values = (f"{_HOSTFILE_FOLDER}/{_HOSTFILE}", "true", slots, "-o ConnectionAttempts=10")
    upsert_env(container, [value_variable(name, value) for name, value in zip(RESERVED, values, strict=True)])


def _slots(draft: Draft, mpi: Obj) -> int:
    """Return the slots per host: the TrainJob's number, else the runtime's, where 1 means one per GPU."""
    number = (draft.trainer or {}).get("numProcPerNode")
    if number is not None:
        return int(number)
    runtime = int(mpi["numProcPerNode"])
    return max(gpu_count(resources_for_process_count(draft)), 1) if runtime == 1 else runtime


def _secret(draft: Draft) -> Obj:
    pair = draft.keys.ssh()
    data = {name: b64encode(text.encode()).decode() for name, text in ((_PRIVATE, pair.private), (_PUBLIC, pair.public))}
    secret = owned_object(draft, "v1", "Secret", _secret_name(draft))
    return secret | {"type": "kubernetes.io/ssh-auth", "immutable": True, "data": data}


def _secret_name(draft: Draft) -> str:
    return f"{draft.name}-mpi-ssh-auth"


def _hostfile_name(draft: Draft) -> str:
    return f"{draft.name}-mpi-hostfile"
