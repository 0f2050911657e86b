"""The control plane that belongs to a folder of runs: started for the first command that needs it, stopped with the last.

Ctrl-C and SIGTERM reach the command first, which leaves its training in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import AlreadyExists, ApiError
from trainwright.api.kinds import CLAIM, TRAINJOB
from trainwright.cluster.submission_mode import VARIABLE, Mode
from trainwright.controlplane.home import Home
from trainwright.controlplane.lifecycle import start, stop
from trainwright.jobs.cancel import suspend_job
from trainwright.jobs.label_values import label_value
from trainwright.quickstart.locks import last_of, share

log = logging.getLogger(__name__)


@contextlib.contextmanager
def own_cluster(runs: Path, console: Console, *, keep: bool = False) -> Iterator[OwnCluster]:
    """The cluster of that folder, being started; at the end it is stopped unless `keep` or another command uses it.

    SIGTERM and Ctrl-C raise KeyboardInterrupt, once.
    """
    home, users = Home(runs / ".home"), runs / ".in-use"
    user = share(users)
    with _orderly_signals():
        try:
            yield OwnCluster(home)
        finally:
            if keep:
                console.print(f"The cluster keeps running: export KUBECONFIG={home.kubeconfig}", highlight=False, soft_wrap=True)
            elif (alone := last_of(users, user)) is not None:
                _stop_quietly(home, console)
                os.close(alone)


class OwnCluster:
    """Starts in the background while the caller does something else; `ready` waits for it."""

    def __init__(self, home: Home):
        self.home = home
        self._starting = _Background(lambda: start(home))

    def ready(self) -> None:
        """Wait until it answers; from then on it is this process's KUBECONFIG, never the user's own. Raises StartFailed."""
        self._starting.join()
        os.environ["KUBECONFIG"] = str(self.home.kubeconfig)
        if os.environ.get(VARIABLE) == Mode.embedded:  # this is one already, and not that of the default home
            del os.environ[VARIABLE]

    def make_claim(self, name: str, workspace: Path) -> None:
        """A claim that is this folder."""
        from trainwright.cluster import connect

        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {names.HOST_PATH_ANNOTATION: str(workspace.absolute())},
            },
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        cluster = connect(self.home.kubeconfig)
        try:
            cluster.create(claim)
        except AlreadyExists:
            cluster.patch(CLAIM, name, {"metadata": {"annotations": claim["metadata"]["annotations"]}}, "default")  # type: ignore[index]

    def suspend_all(self, run: str) -> None:
        """Suspend the run's unfinished TrainJobs, so that they do not start by themselves when the cluster comes back."""
        from trainwright.cluster import NoCluster, connect_for_jobs

        if self.home.running() is None:
            return
        try:
            cluster = connect_for_jobs(self.home.kubeconfig)
            for trainjob in cluster.list(TRAINJOB, label_selector=f"{names.RUN_LABEL}={label_value(run)}").items:
                if not is_finished(trainjob) and not trainjob["spec"].get("suspend"):
                    suspend_job(cluster, trainjob)
        except (ApiError, NoCluster) as error:
            log.warning("the training could not be suspended error=%s", error)


def _stop_quietly(home: Home, console: Console) -> None:
    try:
        stop(home)
    except TimeoutError as error:
        console.print(f"[red]{error}[/red]", highlight=False)


@contextlib.contextmanager
def _orderly_signals() -> Iterator[None]:
    """SIGTERM acts as Ctrl-C does; a second Ctrl-C does not interrupt the stopping."""

    def interrupt(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Background:
    """A call in a thread, whose error comes out when it is joined."""

    def __init__(self, call: Any):
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Any) -> None:
        try:
            call()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
