"""The API over TLS: who may come in, how answers look, what requests are refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from typing import Any

import pytest

from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.connections import HEAD_BYTES, ConnectionTimeouts
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

pytestmark = pytest.mark.medium
MAPS = "/api/v1/namespaces/default/configmaps"


def test_secrets_stay_out_of_errors(peer: Any) -> None:
    answer = peer.send("GET", MAPS, token="hunter2hunter2hunter2")
    assert "hunter2" not in answer.data.decode()
    assert peer.credentials.admin_token not in repr(peer.credentials) + repr(peer.tokens)


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"FOO /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", 405, "MethodNotAllowed"),
        (b"FOO /api/v1/po", 405, "MethodNotAllowed"),  # as far as it has come
        (b"{}FOO /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", 405, "MethodNotAllowed"),  # after a body that came late
        (b"no request at all\r\n\r\n", 400, "BadRequest"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 400, "BadRequest"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"y" * (HEAD_BYTES + 1), 431, "RequestHeaderFieldsTooLarge"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ", 408, "Timeout"),
    ],
)
def test_bad_requests_get_a_status_and_close_the_connection(
    server: ResourceServer, sent: bytes, status: int, reason: str
) -> None:
    with (
        serve(Api(server, Tokens("a" * 32, b"k" * 32)), timeouts=ConnectionTimeouts(head=0.2)) as serving,
        socket.create_connection(("127.0.0.1", serving.port), 20) as client,
    ):
        with contextlib.suppress(ConnectionError):  # hung up on while still sending
            client.sendall(sent)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        body = json.loads(answer.read())
    assert (answer.status, body["reason"], body["code"], answer.getheader("connection")) == (status, reason, status, "close")
