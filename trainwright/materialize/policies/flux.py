"""The Flux policy: an init container copies Flux into the pods, and its brokers run the program.

Like MPI it identifies the replicated job by the name `node`. Its two scripts run in third-party images, so they use only bash,
coreutils and Flux. Source: Trainer's flux plugin (reference sections 2.15, 4.2 rule 26).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, named
from trainwright.materialize.draft import Draft, PodSet, owned_object, upsert_mount, upsert_volume
from trainwright.materialize.resources import gpu_count, resources_for_process_count

INSTALLER = "flux-installer"
_SCRIPTS = "/etc/flux-config"
_DEFAULTS = {
    "FLUX_VIEW_IMAGE": "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
    "FLUX_NETWORK_DEVICE": "eth0",
    "FLUX_QUEUE_POLICY": "fcfs",
}


class FluxPolicy:
    name = "flux"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        if draft.policy("flux") is None:
            return
        if (draft.trainer or {}).get("numNodes") is None:  # upstream admits this and then crashes
            message = "Required value: the Flux runtime requires the number of nodes"
            yield Problem("spec.trainer.numNodes", message, "FieldValueRequired")
        pods = draft.pods_named(names.NODE)
        if pods is not None and named(pods.pod_spec.get("initContainers"), INSTALLER) is not None:
            message = f"Invalid value: the runtime must not have an init container {INSTALLER!r} of its own"
            yield Problem("spec.trainer.initContainers", message)

    def enforce_ml_policy(self, draft: Draft) -> None:
        if draft.policy("flux") is None or draft.trainer is None:
            return
        pods = draft.pods_named(names.NODE)
        if pods is not None:
            _install(draft, pods)
        wrapped = ["/bin/bash", f"{_SCRIPTS}/entrypoint.sh", _original_command(draft)]
        draft.trainer["command"] = wrapped
        draft.trainer.pop("args", None)  # they are part of the wrapped command; the runtime's args are kept

    def build(self, draft: Draft) -> None:
        flux = draft.policy("flux")
        if flux is None:
            return
        settings, trainer = _settings(draft), draft.trainer or {}
        job = FluxJob(
            name=draft.name,
            namespace=draft.namespace,
            nodes=trainer["numNodes"],
            tasks=int(trainer.get("numProcPerNode") or flux["numProcPerNode"]),
            gpus=gpu_count(resources_for_process_count(draft)),
            device=settings["FLUX_NETWORK_DEVICE"],
            queue_policy=settings["FLUX_QUEUE_POLICY"],
        )
        scripts = owned_object(draft, "v1", "ConfigMap", _scripts_name(draft))
        data = {"init.sh": init_script(job), "entrypoint.sh": entrypoint_script(job)}
        draft.companions += [scripts | {"data": data}, _certificate(draft)]


def _settings(draft: Draft) -> dict[str, str]:
    """Return settings from variables with a value: the runtime's container first, then the TrainJob."""
    pods = draft.pods_named(names.NODE)
    container = (pods.container(names.NODE) if pods is not None else None) or {}
    settings = dict(_DEFAULTS)
    for variable in [*(container.get("env") or []), *((draft.trainer or {}).get("env") or [])]:
        if variable["name"] in settings and variable.get("value"):
            settings[variable["name"]] = variable["value"]
    return settings


def _original_command(draft: Draft) -> str:
    """Return the original command as one text, without quoting and without the runtime's arguments."""
    trainer, pods = draft.trainer or {}, draft.trainer_pods()
    container = (pods.container(names.NODE) if pods is not None else None) or {}
    return " ".join([*(trainer.get("command") or container.get("command") or []), *(trainer.get("args") or [])]).strip()


def _install(draft: Draft, pods: PodSet) -> None:
    scripts = _scripts_name(draft)
    for volume in (
        {"name": "spack-install", "emptyDir": {}},
        {"name": "flux-install", "emptyDir": {}},
        {"name": scripts, "configMap": {"name": scripts, "defaultMode": 0o755}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        {"name": "flux-curve", "secret": {"secretName": f"{draft.name}-flux-curve", "defaultMode": 0o400}},
    ):
        upsert_volume(pods.pod_spec, volume)
    shared: Obj = {"name": "flux-install", "mountPath": "/mnt/flux"}
    config: Obj = {"name": scripts, "mountPath": _SCRIPTS, "readOnly": True}
    installer = {
        "name": INSTALLER,
        "image": _settings(draft)["FLUX_VIEW_IMAGE"],
        "command": ["/bin/bash", f"{_SCRIPTS}/init.sh"],
        "volumeMounts": [dict(shared), dict(config)],
    }
    pods.pod_spec.setdefault("initContainers", []).append(installer)
    container = pods.container(names.NODE)
    if container is None:
        return
    for mount in (
        shared,
        {"name": "spack-install", "mountPath": "/opt/software"},
        config,
        {"name": "flux-curve", "mountPath": "/curve", "readOnly": True},
        {"name": "shared-memory", "mountPath": "/dev/shm", "readOnly": True},  # noqa: S108  # a mount in the pod
    ):
        upsert_mount(container, mount)


def _certificate(draft: Draft) -> Obj:
    text = draft.keys.curve_certificate(draft.name)
    secret = owned_object(draft, "v1", "Secret", f"{draft.name}-flux-curve")
    return secret | {"data": {"curve.cert": b64encode(text.encode()).decode()}}


def _scripts_name(draft: Draft) -> str:
    return f"{draft.name}-flux-entrypoint"


@dataclass(frozen=True)
class FluxJob:
    """The parameters of the scripts."""

    name: str
    namespace: str
    nodes: int
    tasks: int
    """Per node."""
    gpus: int
    """Per node."""
    device: str
    queue_policy: str

    @property
    def hosts(self) -> str:
        return f"{self.name}-node-0-[{numbered(self.nodes)}]"


def numbered(count: int) -> str:
    """Return a Flux index range: `0`, or `0-3`."""
    return "0" if count == 1 else f"0-{count - 1}"


def init_script(job: FluxJob) -> str:
    """Return the script that copies Flux to a shared volume and writes the broker configuration."""
    return f"""# Prepares {_SHARED} for the container that runs the program.
set -euo pipefail
fluxroot=/opt/view
mainHost="{job.name}-0"
hosts="{job.hosts}"
echo "Flux for ${{hosts}}, first ${{mainHost}}"
mkdir -p {_CONFIG}/etc/flux/system {_CONFIG}/etc/flux/config {_CONFIG}/etc/flux/imp/conf.d {_CONFIG}/etc/curve
mkdir -p {_CONFIG}/run/flux {_CONFIG}/var/lib/flux
echo "${{hosts}}" > {_CONFIG}/etc/flux/system/hostlist
cat > {_CONFIG}/etc/flux/config/broker.toml <<'BROKER'
[access]
allow-guest-user = true
allow-root-owner = true

[resource]
path = "{_CONFIG}/etc/flux/system/R"

[bootstrap]
curve_cert = "{_CONFIG}/etc/curve/curve.cert"
default_port = 8050
default_bind = "tcp://{job.device}:%p"
default_connect = "tcp://%h.{job.name}.{job.namespace}.svc.cluster.local:%p"
hosts = [
  {{ host = "{job.hosts}" }},
]

[archive]
dbpath = "{_CONFIG}/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = "{job.queue_policy}"
BROKER
cp -R "${{fluxroot}}" {_SHARED}/view
cp -R /opt/software {_SHARED}/software
touch {_SHARED}/installed
"""


def entrypoint_script(job: FluxJob) -> str:
    """Return the script that starts the host's broker and, on the first host, the program, which is its only argument."""
    resources = f"--cores={numbered(job.tasks)}" + (f" --gpu={numbered(job.gpus)}" if job.gpus else "")
    flags = f"-N {job.nodes} -n {job.nodes * job.tasks}" + (f" -g {job.gpus}" if job.gpus else "") + "  "
    return f"""# Runs one broker of the job; $1 is the program, and without one the first host only keeps a broker open.
command="${{1:-}}"
mainHost="{job.name}-node-0-0"
flags="{flags}"
viewroot={_SHARED}/view
export PATH="${{viewroot}}/bin:${{PATH}}"
for packages in "${{viewroot}}"/lib/python3*/site-packages; do
  export PYTHONPATH="${{packages}}${{PYTHONPATH:+:${{PYTHONPATH}}}}"
done
cp -R {_SHARED}/software/. /opt/software/
cp /curve/curve.cert {_CONFIG}/etc/curve/curve.cert
chmod 0400 {_CONFIG}/etc/curve/curve.cert
hosts=$(cat {_CONFIG}/etc/flux/system/hostlist)
flux R encode --hosts=${{hosts}} {resources} > {_CONFIG}/etc/flux/system/R
broker=(--config-path={_CONFIG}/etc/flux/config -Srundir={_CONFIG}/run/flux -Sstatedir={_CONFIG}/var/lib/flux)
broker+=(-Slocal-uri=local://{_CONFIG}/run/flux/local -Slog-stderr-level=6 -Slog-stderr-mode=local)
options=()
for option in "${{broker[@]}}"; do
  options+=(-o "${{option}}")
done
status=0
if [ "$(hostname)" != "${{mainHost}}" ]; then
  until flux start "${{options[@]}}"; do  # the first host may not be up yet
    sleep 15
  done
elif [ -z "${{command}}" ]; then
  flux start "${{options[@]}}" || status=$?
else
  flux start "${{options[@]}}" flux run ${{flags}} ${{command}} || status=$?
fi
touch {_SHARED}/finished
exit ${{status}}
"""


_SHARED = "/mnt/flux"
_CONFIG = f"{_SHARED}/config"
