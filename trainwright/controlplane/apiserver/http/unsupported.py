"""What a client gets for a method that a resource does not have."""

from __future__ import annotations

from trainwright.api.errors import ApiError, MethodNotAllowed
from trainwright.controlplane.apiserver.http.request_metrics import VERBS
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.wire.responses import WRONG_METHOD


def unsupported(target: Target, method: str) -> ApiError:
    """The error, in the words of kube-apiserver for built-in kinds and of its extension server for custom ones."""
    if not target.strategy.custom:
        return MethodNotAllowed(WRONG_METHOD)
    text = f'{VERBS.get(method, "")} is not supported on resources of kind "{target.kind.resource}"'
    return MethodNotAllowed(text, details={"group": target.kind.group, "kind": target.kind.plural})
