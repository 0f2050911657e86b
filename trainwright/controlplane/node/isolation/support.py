"""Finds out, by trying, whether this machine lets this user isolate containers, and what to do if not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwright.controlplane.node.isolation.layers import remove_layer
from trainwright.controlplane.node.isolation.plan import Identity, isolation_plan
from trainwright.storage.locks import lock_descriptor

SETTING = "TRAINWRIGHT_ISOLATION"
_SUPERVISOR = Path(__file__).parents[1] / "supervisor" / "supervise.py"
_SECONDS = 10.0
_PROBE = ": > /etc/.trainwright-probe"
"""Succeeds in a container only if its root file system is writable, which needs an overlay."""
SYSCTLS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
)
"""Settings under /proc/sys that forbid user namespaces, the value that does so, and the remedy (Ubuntu, Debian, RHEL)."""

ExitRecord = dict[str, object]


@dataclass(frozen=True)
class Support:
    """Whether containers can be isolated. `reason` says why not, and what to do."""

    available: bool
    reason: str = ""


def run_probe(probe: Path) -> ExitRecord | None:
    """Run a container in the folder `probe`; return its exit record. Raises subprocess.TimeoutExpired."""
    plan = isolation_plan({}, {}, (), hostname="probe", identity=Identity(0, 0), layer=probe / "layer", is_root=os.geteuid() == 0)
    spec = {"argv": ["/bin/sh", "-c", _PROBE], "env": {}, "cwd": "/", "log": str(probe / "log"), "isolation": plan}
    (probe / "spec.json").write_text(json.dumps(spec), "utf-8")
    lock = os.open(probe / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock_descriptor(lock)
        subprocess.run(
            [sys.executable, "-S", "-E", "-P", str(_SUPERVISOR), str(probe), str(lock)],
            pass_fds=(lock,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            timeout=_SECONDS,
            check=False,
        )
    finally:
        os.close(lock)
    try:
        ended: ExitRecord = json.loads((probe / "exit.json").read_bytes())
    except FileNotFoundError:
        return None
    return ended


def isolation_support(
    folder: Path,
    *,
    run_probe: Callable[[Path], ExitRecord | None] = run_probe,
    sysctls: Sequence[tuple[str, str, str]] = SYSCTLS,
) -> Support:
    """Start a container in a temporary folder below `folder`, which is on the disk of the pods' folders, and report the result.

    Takes some 50 ms, at most 10 s. Raises OSError if `folder` is not writable.
    """
    if os.environ.get(SETTING, "").lower() in ("off", "0", "false", "no"):
        return Support(False, f"isolation is turned off by the environment variable {SETTING}")
    if sys.platform != "linux":
        return Support(False, "isolation needs the namespaces of Linux: run the cluster in a Linux virtual machine")
    with _probe_folder(folder) as probe:
        try:
            ended = run_probe(probe)
        except subprocess.TimeoutExpired:
            return Support(False, f"a container that tests isolation did not end within {_SECONDS:g} s")
    if ended is None:
        return Support(False, "a container that tests isolation ended without a result")
    if ended.get("reason") == "StartError":
        return Support(False, f"{ended['message']}; {_advice(str(ended['message']), sysctls)}")
    if ended["code"] != 0:
        return Support(
            False,
            f"the file system of {folder} cannot hold the writable layer of an overlay: move the cluster's home to a local disk "
            "(ext4, xfs or btrfs)",
        )
    return Support(True)


@contextmanager
def _probe_folder(folder: Path) -> Iterator[Path]:
    probe = Path(tempfile.mkdtemp(prefix=".isolation-probe-", dir=folder))
    try:
        yield probe
    finally:
        remove_layer(str(probe))


def _advice(message: str, sysctls: Sequence[tuple[str, str, str]]) -> str:
    for path, value, remedy in sysctls:
        try:
            is_forbidden = Path("/proc/sys", path).read_text("ascii").strip() == value
        except OSError:  # another kernel
            continue
        if is_forbidden:
            return f"an administrator can allow it: sysctl -w {remedy}"
    if "mount /proc" in message:
        return "in a container, /proc must be unmasked (docker run --security-opt systempaths=unconfined) or the container privileged"
    if "create namespaces" in message:
        return "the kernel or a seccomp filter forbids user namespaces: in a container, run it with seccomp=unconfined"
    return "Linux 5.12 or newer is needed, and in a container the rights to mount"
