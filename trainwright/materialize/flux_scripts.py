"""The two scripts of a Flux job: one prepares the view in the installer container, one starts the brokers and the program.

Source of paths and order: reference section 2.15. The scripts run in third-party images, so they use only bash, coreutils and
Flux.
"""

from __future__ import annotations

from dataclasses import dataclass


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
