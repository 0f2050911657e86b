"""A try of a step: its pod in the cluster, and the processes of its container.

The pod is bound to a node that the cluster does not have, so that no scheduler and no kubelet takes it up.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from factories import pod
from step_program import StepProgram

from trainwright.api.errors import NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import Cluster

NODE = "kfp-backend"
GRACE_SECONDS = 30.0
_HERE = Path(__file__).parent
_SCRIPT = (sys.executable, "-I", "-S")


@dataclass(frozen=True)
class Workflow:
    """The workflow of a pipeline run, `run` its id."""

    run: str
    name: str
    uid: str
    namespace: str = "default"

    @property
    def owner_reference(self) -> Obj:
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": self.name, "uid": self.uid}
        return {**owner, "controller": True, "blockOwnerDeletion": True}

    def node_name(self, place: str, number: int, has_template_defaults: bool) -> str:
        """Return the name of Argo's node of a try. With `templateDefaults`, every node around it has a number, too."""
        parts = [self.name, "root", *place.split("."), "executor"]
        attempt = "(0)" if has_template_defaults else ""
        return f"{f'{attempt}.'.join(parts)}({number})"


class StepPod:
    """A running pod. `was_deleted`: somebody has deleted it; `reason` is that of its failure."""

    is_lost = False
    """Whether Argo takes it for lost: it has seen the deletion before the end of the container."""

    def __init__(
        self, cluster: Cluster, workflow: Workflow, program: StepProgram, node: str, folder: Path, environ: Mapping[str, str]
    ):
        self.was_deleted, self.reason = False, ""
        self._cluster, self._workflow, self._program = cluster, workflow, program
        self.name = f"{workflow.name}-system-container-impl-{secrets.token_hex(4)}"
        self.uid = uid_of(self._create_pod(node))
        self.log, self.published = folder / f"{self.name}.log", folder / f"{self.name}.json"
        self._termination_log = folder / f"{self.name}.termination-log"
        for file in (self.log, self._termination_log):
            file.touch()
        shutil.rmtree(program.folder, ignore_errors=True)  # the file system of a container is new
        program.folder.mkdir(parents=True)
        self._start(environ, Path(tempfile.mkdtemp(dir=folder)))
        self._set_status("Running")

    def terminate(self) -> None:
        """What Argo does to a running pod when its workflow is terminated: SIGTERM to the first process of the container."""
        if self.is_running:
            self._emissary.send_signal(signal.SIGTERM)

    def delete(self, *, end_is_seen_first: bool = False) -> None:
        """What `kubectl delete pod` does; the pod is gone when its container has ended."""
        self.was_deleted, self.is_lost = True, not end_is_seen_first
        self._cluster.delete(POD, self.name, self._workflow.namespace)
        self.terminate()

    def time_out(self) -> None:
        """What the kubelet does at the pod's activeDeadlineSeconds."""
        self.reason = "DeadlineExceeded"
        self.terminate()

    def kill_launcher(self) -> None:
        """Kill the launcher, the direct child of the emissary: the container ends with all its processes."""
        os.kill(self._launcher, signal.SIGKILL)

    def kill_program(self) -> None:
        """What the kernel does to the largest process of a container without memory."""
        (program,) = (process for process in self.processes() if _parent_of(process) == self._launcher)
        os.kill(program, signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        return self._emissary.poll() is None

    def wait(self) -> int:
        """Wait for the end of the container; returns its exit code. The pod has ended then, or is gone. Called once."""
        code = self._emissary.wait()
        if self.was_deleted:
            with contextlib.suppress(NotFound):  # by the garbage collector
                self._cluster.delete(POD, self.name, self._workflow.namespace, grace_period_seconds=0)
        else:
            self._set_status("Failed" if code or self.reason else "Succeeded")
        return code

    def kill(self) -> None:
        """End all processes at once, before one of them can act."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._emissary.kill()
        for process in self.processes():  # that were started meanwhile
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def processes(self) -> list[int]:
        """The processes of the container, wherever they are in the tree: the environment names their pod."""
        mark, found = f"KFP_POD_UID={self.uid}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self._emissary.pid:
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:  # it has ended, or belongs to somebody else
                    continue
                if mark in environment.split(b"\0"):
                    found.append(int(entry.name))
        return found

    @property
    def message(self) -> str:
        """The message of the container, as the kubelet shows it."""
        return self._termination_log.read_text("utf-8")

    def _start(self, environ: Mapping[str, str], temporary: Path) -> None:
        env = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(temporary),
            "TMPDIR": str(temporary),
            **environ,
            "KFP_POD_NAME": self.name,
            "KFP_POD_UID": self.uid,
            "ARGO_NODE_ID": self.name,
            "TRAINWRIGHT_TERMINATION_LOG": str(self._termination_log),
        }
        places = (self.log, self._program.executor_output, self.published)
        launcher = [*_SCRIPT, str(_HERE / "launcher.py"), *map(str, places), *self._program.command]
        command = [*_SCRIPT, str(_HERE / "emissary.py"), *launcher]
        self._emissary = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, cwd=temporary
        )
        assert self._emissary.stdout is not None
        with self._emissary.stdout as pipe:
            self._launcher = int(pipe.readline())

    def _create_pod(self, node: str) -> Obj:
        labels = {"pipeline/runid": self._workflow.run, "workflows.argoproj.io/workflow": self._workflow.name}
        metadata = {
            "annotations": {"workflows.argoproj.io/node-name": node},
            "ownerReferences": [self._workflow.owner_reference],
        }
        made = pod(self.name, namespace=self._workflow.namespace, labels=labels, metadata=metadata, nodeName=NODE)
        return self._cluster.create(made)

    def _set_status(self, phase: str) -> None:
        status = {"phase": phase, **({"reason": self.reason} if self.reason else {})}
        self._cluster.patch(POD, self.name, {"status": status}, self._workflow.namespace, subresource="status")


def _parent_of(process: int) -> int:
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
