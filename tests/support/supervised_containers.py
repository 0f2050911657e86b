"""Starts containers through their supervisor, isolated or not, as this user or as another one: for tests that look from inside."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.waiting import eventually
from trainwright.api.objects import Obj
from trainwright.controlplane.node.isolation.host_folders import remove_layer
from trainwright.controlplane.node.isolation.plan import CONTAINER_UMASK, ContainerMount, container_identity, isolation_plan
from trainwright.controlplane.node.isolation.support import isolation_support
from trainwright.controlplane.node.supervisor import supervise
from trainwright.controlplane.node.supervisor.child_command import command_inside

OTHER_USER = 12345
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass
class Run:
    """One run of a container. `user` is the operator's id, None for that of this process."""

    folder: Path
    process: subprocess.Popen[bytes]
    user: int | None = None

    def state(self) -> dict[str, Any]:
        """Wait until the command is executed."""
        return eventually(lambda: _read(self.folder / "state.json") or {}, what="state.json")

    def ended(self) -> dict[str, Any]:
        """Wait for the end of the container and of its supervisor."""
        self.process.wait(60)
        found = _read(self.folder / "exit.json")
        assert found is not None, "the supervisor has not recorded an exit"
        return found

    def output(self) -> str:
        """Wait for the end, and return what the container printed."""
        self.ended()
        lines = (self.folder / "log").read_text("utf-8").splitlines() if (self.folder / "log").exists() else []
        return "".join(line.split(" ", 3)[3] + "\n" for line in lines)

    def execute(
        self, *argv: str, stdin: str = "", cwd: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, and wait for it."""
        command = command_inside(self.folder, list(argv), {"PATH": PATH, **(env or {})}, cwd)
        command.argv[0] = interpreter(self.user)
        try:
            return subprocess.run(
                command.argv,
                input=stdin,
                capture_output=True,
                text=True,
                pass_fds=(command.env_fd,),
                start_new_session=True,
                env={},
                check=False,
                timeout=60,
                **_as(self.user),
            )
        finally:
            os.close(command.env_fd)


@dataclass
class Runs:
    """Starts runs in `folder`, which belongs to the operator."""

    folder: Path
    user: int | None = None
    started: list[Run] = field(default_factory=list)

    @property
    def is_root(self) -> bool:
        return self.user is None and os.geteuid() == 0

    def start(
        self,
        *argv: str,
        mounts: Sequence[ContainerMount] = (),
        cwd: str = "/",
        pod: Obj | None = None,
        container: Obj | None = None,
        visible: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        shared: Sequence[Path] = (),
        isolated: bool = True,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        is_root: bool | None = None,
        **more: object,
    ) -> Run:
        """Start a container whose command is `argv`. `pod` and `container` are specs; `more` are further keys of the run's spec.

        `prefix` is a command that starts the supervisor; `is_root` says that it does so as root of a user namespace.
        """
        is_root = self.is_root if is_root is None else is_root
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        spec: Obj = {"argv": argv, "env": {"PATH": PATH, **(env or {})}, "cwd": cwd, "log": str(folder / "log"), **more}
        if isolated:
            spec["umask"] = CONTAINER_UMASK
            spec["isolation"] = isolation_plan(
                pod or {},
                container or {},
                mounts,
                hostname="web-0",
                identity=container_identity(pod or {}, container or {}, is_root=is_root),
                layer=folder / "layer",
                visible=visible,
                hidden=hidden,
                shared=shared,
                is_root=is_root,
            )
        (folder / "spec.json").write_text(json.dumps(spec), "utf-8")
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.own(folder)
        command = [*prefix, interpreter(self.user), "-S", "-E", "-P", str(supervise.__file__), str(folder), str(lock)]
        process = subprocess.Popen(command, pass_fds=(lock,), start_new_session=True, env={"PATH": PATH}, **_as(self.user))
        os.close(lock)
        self.started.append(Run(folder, process, self.user))
        return self.started[-1]

    def own(self, folder: Path) -> None:
        """Give a folder and all in it to the operator."""
        if self.user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.user, self.user, follow_symlinks=False)

    def make_folder(self, name: str, files: dict[str, str] | None = None) -> Path:
        """Make a folder of the operator with these files."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        for path, text in (files or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        self.own(folder)
        return folder


@contextmanager
def supervised_runs(user: int | None) -> Iterator[Runs]:
    """Give a folder for runs; kills their supervisors and removes it at the end. Skips where the kernel refuses isolation."""
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if user is not None and not _is_usable(interpreter(user), user):
        pytest.skip("another user cannot run a Python of version 3.11 or newer here")
    if reason := refusal():
        pytest.skip(reason)
    runs = Runs(Path(tempfile.mkdtemp(prefix="supervised-")), user)
    runs.own(runs.folder)
    try:
        yield runs
    finally:
        for run in runs.started:
            run.process.kill()
            run.process.wait(10)
        remove_layer(str(runs.folder))


@cache
def refusal() -> str:
    """Why containers cannot be isolated here; empty if they can."""
    folder = Path(tempfile.mkdtemp(prefix="supervised-"))
    try:
        return isolation_support(folder).reason
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def interpreter(user: int | None) -> str:
    """A Python that this user may run."""
    if user is None or _is_usable(sys.executable, user):
        return sys.executable
    return "/usr/bin/python3"


def is_running(pid: int) -> bool:
    """Whether a process exists, and is more than the record of its exit."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_usable(python: str, user: int) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False, cwd="/", **_as(user)
        )
    except OSError:
        return False
    return done.returncode == 0


def _as(user: int | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": [user]}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return found
