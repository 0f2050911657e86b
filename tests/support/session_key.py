"""A key in the session keyring of this process, as a login with Kerberos has it, and the program that looks for it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

_ADD_KEY, _KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine, (0, 0))
_JOIN_SESSION_KEYRING, _SESSION_KEYRING = 1, -3
SEARCH = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
key = libc.syscall({_KEYCTL}, 10, -3, b"user", b"trainwright-test-ticket", 0)
print("found" if key >= 0 else ctypes.get_errno(), flush=True)
"""
"""Prints `found`, or the number of the error."""


def make_session_key() -> None:
    """Give this process a session keyring with the key, which goes with the process. Skips the test where there are no keys."""
    if not _KEYCTL:
        pytest.skip("the numbers of the system calls are not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    is_joined = libc.syscall(_KEYCTL, _JOIN_SESSION_KEYRING, None) >= 0
    if not is_joined or libc.syscall(_ADD_KEY, b"user", b"trainwright-test-ticket", b"secret", 6, _SESSION_KEYRING) < 0:
        pytest.skip(f"this kernel or a filter refuses keys: {os.strerror(ctypes.get_errno())}")
    assert subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, check=True).stdout == b"found\n"
