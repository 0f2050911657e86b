"""Forbidden errors of the authorizer, with kube-apiserver's messages."""

from __future__ import annotations

from trainwright.api.errors import Forbidden
from trainwright.controlplane.apiserver.http.request_metrics import VERBS
from trainwright.controlplane.apiserver.resources.paths import NoSuchPath, parse_target


def forbidden_error(method: str, path: str, parts: list[str], user: str = "system:anonymous") -> Forbidden:
    """The error for an anonymous request or an unauthorized user."""
    who = f'User "{user}"'
    try:
        if parts[:1] not in (["api"], ["apis"]) or len(parts) < (3 if parts[0] == "api" else 4):
            raise NoSuchPath(text=True)
        target = parse_target(parts)
    except NoSuchPath:
        return Forbidden(f'forbidden: {who} cannot {VERBS.get(method, method.lower())} path "{path}"')
    kind = target.kind
    verb = "list" if method == "GET" and not target.name else VERBS.get(method, method.lower())
    where = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
    subject = f'{kind.resource} "{target.name}"' if target.name else kind.resource
    text = f'{subject} is forbidden: {who} cannot {verb} resource "{kind.plural}" in API group "{kind.group}"{where}'
    details = {key: value for key, value in (("name", target.name), ("group", kind.group), ("kind", kind.plural)) if value}
    return Forbidden(text, details=details)
