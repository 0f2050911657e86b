"""TokenRequest: issues service account tokens for an audience and a lifetime, optionally bound to a pod or a Secret."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from trainwright.api import kinds
from trainwright.api.errors import BadRequest, Invalid
from trainwright.api.objects import Obj, account_of, uid_of
from trainwright.api.rules.token_life import token_life_problems
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE, Tokens
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.api_errors import conflict_error, not_found_error

KIND, API_VERSION = "TokenRequest", "authentication.k8s.io/v1"
_DEFAULT_SECONDS = 3600
_BOUND = {"Pod": kinds.POD, "Secret": kinds.SECRET}


def issue_token(server: ResourceServer, tokens: Tokens, namespace: str, account: str, request: Any, now: datetime) -> Obj:
    """The request with its token, whose life may be shorter than requested.

    Raises BadRequest, Invalid, NotFound, Conflict if the UID of the bound object differs.
    """
    spec = _spec(request)
    uid = uid_of(server.get(kinds.SERVICE_ACCOUNT, namespace, account).object)
    audiences, seconds = spec.get("audiences") or [API_AUDIENCE], spec.get("expirationSeconds")
    seconds = _DEFAULT_SECONDS if seconds is None else seconds
    if problems := list(token_life_problems(seconds, "spec.expirationSeconds")):
        raise Invalid.of(KIND, "", problems, "authentication.k8s.io")
    seconds = min(seconds, tokens.longest_seconds)
    bound = {"serviceaccount": {"name": account, "uid": uid}}
    reference = spec.get("boundObjectRef")
    if reference is not None:
        bound |= _bound(server, namespace, account, reference)
    token = tokens.issue(audiences, namespace, account, bound, seconds, now)
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {"name": account, "namespace": namespace, "creationTimestamp": rfc3339(now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
        "status": {"token": token, "expirationTimestamp": rfc3339(now + timedelta(seconds=seconds))},
    }


def _spec(request: Any) -> Obj:
    unrecognised = f"the object provided is unrecognized (must be of type {KIND})"
    if not isinstance(request, dict) or request.get("kind", KIND) != KIND or not isinstance(request.get("spec") or {}, dict):
        raise BadRequest(unrecognised)
    spec: Obj = request.get("spec") or {}
    audiences, seconds = spec.get("audiences") or [], spec.get("expirationSeconds")
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise BadRequest(f"{unrecognised}: spec.audiences is a list of strings")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int)):
        raise BadRequest(f"{unrecognised}: spec.expirationSeconds is a number of seconds")
    reference = spec.get("boundObjectRef")
    if reference is not None and not (isinstance(reference, dict) and all(isinstance(part, str) for part in reference.values())):
        raise BadRequest(f"{unrecognised}: spec.boundObjectRef names an object")
    return spec


def _bound(server: ResourceServer, namespace: str, account: str, reference: Obj) -> Obj:
    """Return the claims of the object that a token is bound to, and of the pod's node."""
    kind = _BOUND.get(reference.get("kind", ""))
    if kind is None or reference.get("apiVersion", "v1") != "v1":
        raise BadRequest(f"cannot bind token for serviceaccount to object of type {reference.get('kind') or 'none'}")
    name, wanted = reference.get("name", ""), reference.get("uid", "")
    if not name:
        raise not_found_error(kind, name)
    found = server.get(kind, namespace, name).object
    uid = uid_of(found)
    if kind == kinds.POD and account_of(found) != account:
        why = "to pod running with different serviceaccount name."
        raise BadRequest(f'cannot bind token for serviceaccount "{account}" {why}')
    if wanted and wanted != uid:
        why = f"the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted"
        raise conflict_error(kind, name, f"{why} and then recreated")
    claims = {kind.kind.lower(): {"name": name, "uid": uid}}
    node = (found.get("spec") or {}).get("nodeName") if kind == kinds.POD else None
    if node and (record := server.store.get(kinds.NODE.resource, "", node)) is not None:
        claims["node"] = {"name": node, "uid": uid_of(record.object)}
    return claims
