"""Keys in the session keyring of the login that started the cluster are out of reach: in containers, commands and plain processes."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys

import pytest
from support.supervised_containers import Runs, interpreter

from trainwright.controlplane.node.isolation import session_keyring
from trainwright.controlplane.node.isolation.session_keyring import join_new_session_keyring
from trainwright.controlplane.node.supervisor import exec_child

ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine, (0, 0))
SEARCH = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
key = libc.syscall({KEYCTL}, 10, -3, b"user", b"trainwright-test-ticket", 0)
print("found" if key >= 0 else ctypes.get_errno(), flush=True)
"""


@pytest.fixture
def ticket() -> None:
    """A key in the session keyring of this process, as a login with Kerberos has it; it goes with the process."""
    if not KEYCTL:
        pytest.skip("the numbers of the system calls are not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(KEYCTL, 1, None) < 0 or libc.syscall(ADD_KEY, b"user", b"trainwright-test-ticket", b"secret", 6, -3) < 0:
        pytest.skip(f"this kernel or a filter refuses keys: {os.strerror(ctypes.get_errno())}")
    assert subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, check=True).stdout == b"found\n"


@pytest.mark.medium
@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("user", [None, 1000])
def test_container_does_not_find_keys_of_the_operator(ticket: None, runs: Runs, isolated: bool, user: int | None) -> None:
    pod = {"securityContext": {"runAsUser": user}} if user else {}
    run = runs.start("/usr/bin/python3", "-I", "-c", SEARCH, isolated=isolated, pod=pod)
    assert run.output() == f"{errno.ENOKEY}\n"


@pytest.mark.medium
def test_command_in_container_does_not_find_keys_of_the_operator(ticket: None, runs: Runs) -> None:
    run = runs.start("sleep", "600")
    run.state()
    assert run.execute("/usr/bin/python3", "-I", "-c", SEARCH).stdout == f"{errno.ENOKEY}\n"


def test_command_beside_plain_process_does_not_find_keys_of_the_operator(ticket: None) -> None:
    command = [interpreter(None), "-S", "-E", "-P", str(exec_child.__file__), "/", "0", sys.executable, "-c", SEARCH]
    assert subprocess.run(command, capture_output=True, check=True).stdout == f"{errno.ENOKEY}\n".encode()


@pytest.mark.parametrize(
    ("joins", "reads", "refused"),
    [
        (0, 0, False),
        (errno.ENOSYS, 0, False),
        (errno.EPERM, errno.EPERM, False),  # a filter, which children keep
        (errno.EPERM, 0, True),
        (errno.EDQUOT, 0, True),
        (errno.EACCES, 0, True),
    ],
)
def test_only_kernels_without_keys_go_without_a_keyring(
    monkeypatch: pytest.MonkeyPatch, joins: int, reads: int, refused: bool
) -> None:
    monkeypatch.setattr(session_keyring, "_keyctl", lambda operation, *_: joins if operation == 1 else reads)
    monkeypatch.setattr(session_keyring.sys, "platform", "linux")
    if not refused:
        join_new_session_keyring()
        return
    with pytest.raises(OSError, match="join a new session keyring") as raised:
        join_new_session_keyring()
    assert raised.value.errno == joins
