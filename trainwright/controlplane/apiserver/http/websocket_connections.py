"""WebSocket connections whose handshake cannot be decoded get an error response.

Wraps uvicorn's protocol: wsproto decodes some headers as ASCII and the host as a domain name, and lets the error pass.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from trainwright.controlplane.apiserver.http.raw_responses import raw_error


class WebSocketConnection(WSProtocol):
    """uvicorn's WebSocket, which returns 400 for headers that are not text."""

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except UnicodeError:
            if not self.handshake_complete:
                self.transport.write(raw_error(400, "BadRequest", "the headers of the WebSocket handshake are not ASCII"))
            self.transport.close()
