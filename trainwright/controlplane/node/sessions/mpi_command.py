"""Starts a command for a pod of an MPI job in another pod of the job, like `exec`.

The command gets the client's own files as its standard streams: nothing is copied, and a reader that is slow makes it wait.
"""

from __future__ import annotations

import logging
import secrets
import socket
import subprocess
import sys

from trainwright.api import names
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, uid_of
from trainwright.controlplane.node.container import latest_run
from trainwright.controlplane.node.container_context import NodeServices, create_context
from trainwright.controlplane.node.mpi import session
from trainwright.controlplane.node.mpi.job_sockets import Job, Refused
from trainwright.controlplane.node.mpi.stand_in import has_key
from trainwright.controlplane.node.network.host_names import pod_domain, short_host_name
from trainwright.controlplane.node.supervisor.child_command import ChildCommand, child_command
from trainwright.controlplane.node.volumes.references import ConfigError, VolumeError

MARK = "TRAINWRIGHT_REMOTE_COMMAND"
"""A variable of the processes of a command."""
log = logging.getLogger(__name__)


def start_remote_command(
    services: NodeServices, job: Job, host: str, command: list[str], files: list[int], connection: socket.socket
) -> subprocess.Popen[bytes]:
    """Start it in the container of the host that has the job's key. Raises Refused, OSError."""
    selector = f"{names.JOBSET_UID_LABEL}={job.jobset_uid}"
    for pod in services.cluster.list(POD, job.namespace, label_selector=selector).items:
        container = next((each for each in pod["spec"]["containers"] if has_key(each)), None)
        if container is None or is_deleting(pod) or not _is_named(pod, host):
            continue
        folder = services.pods_folder / uid_of(pod)
        run = latest_run(container["name"], folder)
        if run is None or run.termination() is not None:
            continue
        try:
            context = create_context(pod, container, run, folder, services)
        except (ConfigError, VolumeError) as error:
            raise Refused(str(error)) from error
        env = {**context.env, MARK: secrets.token_hex(8)}
        with child_command(command, env, context.cwd, tty=False, isolated_run=run.folder) as child:
            process = start_session(child, f"{MARK}={env[MARK]}", files, connection)
        log.info("event=mpi_command_started pod=%s/%s container=%s", job.namespace, name_of(pod), container["name"])
        return process
    raise Refused("no pod of this job with this host name is running")


def start_session(command: ChildCommand, mark: str, files: list[int], connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start a command for a client in a process that ends it with the client. Raises OSError."""
    stdin, stdout, stderr = files
    return subprocess.Popen(
        [sys.executable, "-S", "-E", "-P", session.__file__, str(connection.fileno()), mark, *command.argv],
        env=command.env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(*command.pass_fds, connection.fileno()),
        start_new_session=True,
    )


def _is_named(pod: Obj, host: str) -> bool:
    """Whether the host is the pod's name in any of the forms of the hosts file, or its address."""
    full = f"{short_host_name(pod)}.{pod_domain(pod)}."
    return bool(host) and (full.startswith(f"{host}.") or host == (pod.get("status") or {}).get("podIP"))
