"""TokenRequest: issues service account tokens for an audience and a lifetime, optionally bound to a pod or a Secret."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from trainwright.api import kinds
from trainwright.api.errors import BadRequest, Invalid, NotFound, Problem
from trainwright.api.objects import Obj, uid_of
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE, Tokens
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.api_errors import conflict_error, not_found_error

KIND, API_VERSION = "TokenRequest", "authentication.k8s.io/v1"
_DEFAULT_SECONDS = 3600
_SHORTEST, _LONGEST = 600, 1 << 32
_LASTING = timedelta(days=365)
"""Maximum token lifetime; longer requests are shortened, as kube-apiserver does."""
_BOUND = {"Pod": kinds.POD, "Secret": kinds.SECRET}
_EVERYWHERE = "default"
"""The default service account of pods, which exists in every namespace."""


def issue_token(server: ResourceServer, tokens: Tokens, namespace: str, account: str, request: Any, now: datetime) -> Obj:
    """The request with its token. Raises BadRequest, Invalid, NotFound, Conflict if the UID of the bound object differs."""
    spec = _spec(request)
    uid = _uid_of_account(server, namespace, account)
    audiences, seconds = spec.get("audiences") or [API_AUDIENCE], spec.get("expirationSeconds")
    seconds = _DEFAULT_SECONDS if seconds is None else seconds
    if problems := list(_problems(seconds)):
        raise Invalid.of(KIND, "", problems, "authentication.k8s.io")
    seconds = min(seconds, int(_LASTING.total_seconds()))
    bound = {"serviceaccount": {"name": account, **({"uid": uid} if uid else {})}}
    reference = spec.get("boundObjectRef")
    if reference is not None:
        bound |= _bound(server, namespace, reference)
    token = tokens.issue_bound(audiences, namespace, account, bound, seconds, now)
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


def _problems(seconds: int) -> Iterator[Problem]:
    if seconds < _SHORTEST:
        yield Problem("spec.expirationSeconds", f"Invalid value: {seconds}: may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        yield Problem("spec.expirationSeconds", f"Invalid value: {seconds}: may not specify a duration larger than 2^32 seconds")


def _uid_of_account(server: ResourceServer, namespace: str, account: str) -> str:
    try:
        return uid_of(server.get(kinds.SERVICE_ACCOUNT, namespace, account).object)
    except NotFound:
        if account != _EVERYWHERE:
            raise
    server.get(kinds.NAMESPACE, "", namespace)
    return ""


def _bound(server: ResourceServer, namespace: str, reference: Obj) -> Obj:
    kind = _BOUND.get(reference.get("kind", ""))
    if kind is None or reference.get("apiVersion", "v1") != "v1":
        raise BadRequest(f"cannot bind token for serviceaccount to object of type {reference.get('kind') or 'none'}")
    name, wanted = reference.get("name", ""), reference.get("uid", "")
    if not name:
        raise not_found_error(kind, name)
    uid = uid_of(server.get(kind, namespace, name).object)
    if wanted and wanted != uid:
        why = f"the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted"
        raise conflict_error(kind, name, f"{why} and then recreated")
    return {kind.kind.lower(): {"name": name, "uid": uid}}
