"""The connection between `remote_shell.py` and `launch_agent.py`: each proves that it has the job's key, then come frames.

Standard library only, because both run in pods. Every program of the machine can reach the agent's port: nothing is done for a peer
before its proof. The proofs include both addresses, so that a program that listens elsewhere cannot pass them on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

ADDRESS, KEY = "TRAINWRIGHT_POD_IP", "TRAINWRIGHT_MPI_KEY"
"""Variables of a container: the address of its pod, and the path of the job's private key."""
COMMAND, INPUT, INPUT_END, SIGNAL = b"C", b"I", b"E", b"S"
"""Kinds of the client's frames. The payload of SIGNAL is the signal's number as text."""
OUTPUT, ERRORS, WINDOW, EXIT = b"O", b"R", b"W", b"X"
"""Kinds of the agent's frames. WINDOW: so many bytes of input were written. EXIT: the exit code. Numbers are text."""
INPUT_WINDOW = 256 * 1024
"""Bytes of input that may be under way, in pipes and buffers between the two."""
CHUNK = 64 * 1024
MAX_FRAME = 4 * 1024 * 1024
"""More than any command that a kernel takes."""
HANDSHAKE_SECONDS = 10.0

_GREETING = b"trainwright launch agent 1\n"
_NONCE, _PROOF = 32, 32
_REFUSED, _ACCEPTED = b"N", b"Y"
_HEADER = struct.Struct("!cI")
_KINDS = {COMMAND, INPUT, INPUT_END, SIGNAL, OUTPUT, ERRORS, WINDOW, EXIT}
_MAX_KEY = 64 * 1024


class WireError(Exception):
    """The peer is not one, does not have the key, or sends what is no frame."""


class PeerLeft(WireError):
    """The peer has closed the connection before it said anything, as probes do."""


def read_key(path: str) -> bytes:
    """Return the key of a job from the file of its private ssh key. Raises OSError, WireError for an empty or a huge file."""
    with open(path, "rb") as file:
        content = file.read(_MAX_KEY + 1)
    if not content or len(content) > _MAX_KEY:
        raise WireError(f"{path} is not a private key")
    return hashlib.sha256(content).digest()


def accept_peer(connection: socket.socket, key: bytes) -> None:
    """As the agent: let the client prove that it has the key, then prove it. Raises WireError, OSError."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    own = secrets.token_bytes(_NONCE)
    connection.sendall(_GREETING + own)
    answer = _receive(connection, len(_GREETING) + _NONCE + _PROOF, deadline)
    greeting, peer, proof = answer[: len(_GREETING)], answer[-_NONCE - _PROOF : -_PROOF], answer[-_PROOF:]
    ends = _address(connection.getsockname()) + _address(connection.getpeername())
    if greeting != _GREETING or not hmac.compare_digest(proof, _prove(key, b"client", own + peer, ends)):
        connection.sendall(_REFUSED)
        raise WireError("the client does not have the key of this job")
    connection.sendall(_ACCEPTED + _prove(key, b"agent", own + peer, ends))


def greet_agent(connection: socket.socket, key: bytes) -> None:
    """As the client: prove to have the key, and let the agent prove it. Raises WireError, OSError."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    opening = _receive(connection, len(_GREETING) + _NONCE, deadline)
    if not opening.startswith(_GREETING):
        raise WireError("what listens there is not a launch agent")
    own = secrets.token_bytes(_NONCE)
    nonces = opening[-_NONCE:] + own
    ends = _address(connection.getpeername()) + _address(connection.getsockname())
    connection.sendall(_GREETING + own + _prove(key, b"client", nonces, ends))
    if _receive(connection, 1, deadline) != _ACCEPTED:
        raise WireError("the launch agent has another key: it is of another job")
    if not hmac.compare_digest(_receive(connection, _PROOF, deadline), _prove(key, b"agent", nonces, ends)):
        raise WireError("the launch agent does not have the key of this job")


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind, len(payload)) + payload


def number_frame(kind: bytes, number: int) -> bytes:
    return frame(kind, b"%d" % number)


def parse_number(payload: bytes, most: int) -> int:
    """Return the number of a frame. Raises WireError unless it is from 0 to `most`."""
    if not payload.isdigit() or len(payload) > len(str(most)) or int(payload) > most:
        raise WireError("a frame has no valid number")
    return int(payload)


@dataclass
class FrameReader:
    """Splits received bytes into frames, of which it keeps at most one that is incomplete."""

    _pending: bytearray = field(default_factory=bytearray)

    def feed(self, received: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield kind and payload of each frame that is now complete. Raises WireError for an unknown kind or too much of it."""
        self._pending += received
        while len(self._pending) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._pending)
            if kind not in _KINDS or length > MAX_FRAME:
                raise WireError("the connection carries something else than frames")
            end = _HEADER.size + length
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[_HEADER.size : end])
            del self._pending[:end]
            yield kind, payload


def exit_code(status: int) -> int:
    """Return the exit code of a wait status as a shell gives it: 128 and the number of the signal for a killed process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _prove(key: bytes, role: bytes, nonces: bytes, ends: bytes) -> bytes:
    return hmac.digest(key, _GREETING + role + b"\n" + nonces + ends, "sha256")


def _address(found: tuple[str, int]) -> bytes:
    return f"{found[0]} {found[1]}\n".encode()


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    received = b""
    while len(received) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WireError("the peer does not answer")
        connection.settimeout(left)
        try:
            part = connection.recv(size - len(received))
        except TimeoutError:
            raise WireError("the peer does not answer") from None
        if not part:
            raise (WireError if received else PeerLeft)("the peer has closed the connection")
        received += part
    connection.settimeout(None)
    return received
