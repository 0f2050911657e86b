"""Small servers for probes: each answers every connection by a function, in a thread of its own, and keeps what it was sent."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_HANDSHAKE = b"\x16"
"""With this a client begins that wants TLS."""
Answer = Callable[[socket.socket, bytes], None]
"""Called with the connection and the head of the request."""


@dataclass
class Server:
    """Where a server listens, and the requests that it got."""

    port: int
    requests: list[bytes] = field(default_factory=list)

    def url(self, path: str = "/", scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def headers(self, number: int = -1) -> list[str]:
        """The lines of a request, without the empty ones."""
        return [line for line in self.requests[number].decode().split("\r\n") if line]


@contextlib.contextmanager
def serve(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server on a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, server, answer, tls), daemon=True).start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def replies(*texts: str, body: str = "") -> Answer:
    """Answers one after the other, the last one for ever: each is a status line and headers, with `|` between them."""
    pending = list(texts)

    def answer(connection: socket.socket, request: bytes) -> None:
        text = pending.pop(0) if len(pending) > 1 else pending[0]
        lines = ["HTTP/1.1 " + text.replace("|", "\r\n"), f"Content-Length: {len(body)}", "", body]
        connection.sendall("\r\n".join(lines).encode())

    return answer


def _accept(listener: socket.socket, server: Server, answer: Answer, tls: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # shut down
            return
        threading.Thread(target=_handle, args=(connection, server, answer, tls), daemon=True).start()


def _handle(connection: socket.socket, server: Server, answer: Answer, tls: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError), connection:
        encrypted = tls.wrap_socket(connection, server_side=True) if tls else connection
        with encrypted:
            head = b""
            while not head.startswith(_HANDSHAKE) and b"\r\n\r\n" not in head and (data := encrypted.recv(65536)):
                head += data
            server.requests.append(head)
            answer(encrypted, head)
