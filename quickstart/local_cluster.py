"""The embedded control plane of a runs folder: started by the first command that needs it, stopped by the last.

On Ctrl-C and SIGTERM the command first suspends its training.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import AlreadyExists, ApiError
from trainwright.api.kinds import CLAIM, TRAINJOB
from trainwright.controlplane.node.warm_start.warm_parent import SETTING
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import start, stop
from trainwright.jobs.state.cancel import suspend_job
from trainwright.jobs.state.run_folder import label_value
from trainwright.quickstart.run_folder import release_share, share
from trainwright.submission.jobs_client import VARIABLE, Mode

log = logging.getLogger(__name__)


@contextlib.contextmanager
def local_cluster(
    runs: Path, console: Console, *, keep: bool = False, warm_for: Mapping[str, str] | None = None
) -> Iterator[LocalCluster]:
    """Start the cluster of that folder in the background. On exit it is stopped, unless `keep` is set or another command uses it.

    `warm_for` are the variables of pods for which a started cluster imports torch and transformers at once (docs/pods.md).
    SIGTERM and Ctrl-C raise KeyboardInterrupt, once.
    """
    home, users = Home(runs / ".home"), runs / ".in-use"
    user = share(users)
    with _interrupt_on_signals():
        try:
            yield LocalCluster(home, warm_for or {})
        finally:
            if keep:
                stopping = f"stop it with: trainwright down --home {shlex.quote(str(home.path))}"
                console.print(f"The cluster keeps running: export KUBECONFIG={home.kubeconfig}", highlight=False, soft_wrap=True)
                console.print(f"  {stopping}", highlight=False, soft_wrap=True)
            elif (alone := release_share(users, user)) is not None:
                try:
                    stop(home)
                except TimeoutError as error:  # shown, so that it replaces no error of the run
                    console.print(str(error), style="red", markup=False, highlight=False)
                os.close(alone)


class LocalCluster:
    """Starts in the background; `ready` waits until it is running."""

    def __init__(self, home: Home, warm_for: Mapping[str, str]):
        self.home = home
        if warm_for:
            os.environ.setdefault(SETTING, " ".join(f"{name}={value}" for name, value in warm_for.items()))
        self._starting = _Background(lambda: start(home))

    def ready(self) -> None:
        """Wait until it is running, then set KUBECONFIG of this process to it, replacing the user's. Raises StartFailed."""
        self._starting.join()
        os.environ["KUBECONFIG"] = str(self.home.kubeconfig)
        if os.environ.get(VARIABLE) == Mode.embedded:  # would start another embedded cluster, in the default home
            del os.environ[VARIABLE]

    def create_claim(self, name: str, workspace: Path) -> None:
        """Create a claim that is backed by this folder."""
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
        """Suspend the run's unfinished TrainJobs, so that they do not continue when the cluster is started again."""
        from trainwright.cluster import NoCluster
        from trainwright.submission import connect_for_jobs

        if self.home.running() is None:
            return
        try:
            cluster = connect_for_jobs(self.home.kubeconfig)
            for trainjob in cluster.list(TRAINJOB, label_selector=f"{names.RUN_LABEL}={label_value(run)}").items:
                if not is_finished(trainjob) and not trainjob["spec"].get("suspend"):
                    suspend_job(cluster, trainjob)
        except (ApiError, NoCluster) as error:
            log.warning("failed to suspend the training error=%s", error)


@contextlib.contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, and ignore further signals during shutdown."""

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
    """Runs a call in a thread and raises its error when joined."""

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
