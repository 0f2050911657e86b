"""Handles exec, attach and portforward requests. All validation happens before the connection is upgraded."""

from __future__ import annotations

from starlette.types import ASGIApp

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.streaming.container_logs import container_of
from trainwright.controlplane.apiserver.streaming.open_streams import OpenStreams
from trainwright.controlplane.apiserver.streaming.port_forward import V4, ChannelForward, parse_ports
from trainwright.controlplane.apiserver.streaming.remote_command import PROTOCOLS, CommandOptions, RemoteCommand
from trainwright.controlplane.apiserver.streaming.sessions import Sessions, check_assigned
from trainwright.controlplane.apiserver.streaming.spdy_forward import PROTOCOL as SPDY
from trainwright.controlplane.apiserver.streaming.spdy_forward import SpdyForward
from trainwright.controlplane.apiserver.streaming.websocket import negotiate_protocol
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.requests import Request


async def open_pod_session(
    request: Request, server: ResourceServer, sessions: Sessions, streams: OpenStreams, target: Target
) -> ASGIApp:
    """The response to an `exec`, `attach` or `portforward` handshake. Raises ApiError."""
    pod = server.get(target.kind, target.namespace_key, target.name).object
    if target.subresource == "portforward":
        return _forward(request, sessions, streams, pod, target.name)
    options = CommandOptions.parse(request.query_params, command_needed=target.subresource == "exec")
    container = container_of(pod, options.container)
    check_assigned(pod, target.name)
    if target.subresource == "attach":
        sessions.check_attach(pod, container, options.wanted)
        protocol = _protocol(request, PROTOCOLS)
        session = await sessions.attach(pod, container)
    else:
        sessions.check_exec(pod, container)
        protocol = _protocol(request, PROTOCOLS)
        session = await sessions.exec(pod, container, options.command, options.wanted)
    return RemoteCommand(protocol, streams, session, options.wanted)


def _forward(request: Request, sessions: Sessions, streams: OpenStreams, pod: Obj, name: str) -> ASGIApp:
    ports = parse_ports(request.query_params.getlist("ports"))
    check_assigned(pod, name)
    sessions.check_forward(pod)
    protocol = _protocol(request, (SPDY, V4))
    if protocol == SPDY:
        return SpdyForward(streams, sessions, pod)
    if not ports:
        raise BadRequest('query parameter "ports" is required')
    return ChannelForward(streams, sessions, pod, ports)


def _protocol(request: Request, spoken: tuple[str, ...]) -> str:
    if "subprotocols" in request.scope:
        return negotiate_protocol(request.scope, spoken)
    if request.headers.get("upgrade", "").lower().startswith("spdy/"):
        raise BadRequest(
            f"unable to upgrade to {request.headers['upgrade']}: this server requires WebSockets ({', '.join(spoken)}), "
            "which kubectl supports since 1.31"
        )
    raise BadRequest("Upgrade request required")
