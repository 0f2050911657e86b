"""The error for a method that a resource does not support."""

from __future__ import annotations

from trainwright.api.errors import ApiError, MethodNotAllowed
from trainwright.controlplane.apiserver.http.request_metrics import VERBS
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.wire.responses import METHOD_NOT_ALLOWED


def unsupported(target: Target, method: str) -> ApiError:
    """The error with the message of kube-apiserver, or of apiextensions-apiserver for custom resources."""
    if not target.strategy.custom:
        return MethodNotAllowed(METHOD_NOT_ALLOWED)
    text = f'{VERBS.get(method, "")} is not supported on resources of kind "{target.kind.resource}"'
    return MethodNotAllowed(text, details={"group": target.kind.group, "kind": target.kind.plural})
