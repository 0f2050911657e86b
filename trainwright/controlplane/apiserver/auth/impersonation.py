"""Impersonation: the headers of `kubectl --as`, and the rights that each of them needs.

Source: staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation of Kubernetes. It answers headers without a user with
code 500; here they are a BadRequest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import unquote

from trainwright.api.errors import BadRequest
from trainwright.controlplane.apiserver.auth.authorizer import Access
from trainwright.controlplane.apiserver.auth.caller import Caller
from trainwright.controlplane.apiserver.auth.users import impersonated_user, impersonation_target

_PREFIX, _EXTRA = "impersonate-", "impersonate-extra-"
_GROUP = "authentication.k8s.io"


def impersonated(caller: Caller, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """Return the caller that a request is sent as. Raises BadRequest for other headers without a user, Forbidden."""
    given = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    given = [(name, value) for name, value in given if name.startswith(_PREFIX)]
    if not given:
        return caller
    named = next((value for name, value in given if name == "impersonate-user" and value), "")
    if not named:
        asked = ", ".join(sorted({name for name, _ in given}))
        raise BadRequest(f"requested {asked} without impersonating a user")
    groups = tuple(value for name, value in given if name == "impersonate-group")
    uid = next((value for name, value in given if name == "impersonate-uid"), "")
    extra = tuple((unquote(name.removeprefix(_EXTRA)), value) for name, value in given if name.startswith(_EXTRA))
    resource, account, namespace = impersonation_target(named)
    caller.require_access(Access("impersonate", "", resource, account, namespace))
    for group in groups:
        caller.require_access(Access("impersonate", "", "groups", group))
    for key, value in extra:
        caller.require_access(Access("impersonate", _GROUP, f"userextras/{key}", value))
    if uid:
        caller.require_access(Access("impersonate", _GROUP, "uids", uid))
    return replace(caller, user=replace(impersonated_user(named, groups), uid=uid, extra=extra))
