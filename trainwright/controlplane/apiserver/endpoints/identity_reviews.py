"""SelfSubjectReview and TokenReview."""

from __future__ import annotations

from typing import Any

from trainwright.api.errors import BadRequest, Unauthorized
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE, Tokens

GROUP = "authentication.k8s.io"
_ADMINISTRATOR: Obj = {"username": "trainwright-admin", "groups": ["system:masters", "system:authenticated"]}


def review_self(_review: Obj, _tokens: Tokens) -> Obj:
    """The status of a SelfSubjectReview; only the administrator can send one."""
    return {"userInfo": _ADMINISTRATOR}


def review_token(review: Obj, tokens: Tokens) -> Obj:
    """The status of a TokenReview. Raises BadRequest."""
    spec = review.get("spec") or {}
    token, audiences = spec.get("token"), spec.get("audiences") or [API_AUDIENCE]
    if not isinstance(token, str) or not token:
        raise BadRequest("token is required for TokenReview in authentication")
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise BadRequest("audiences is a list of strings")
    if tokens.is_admin(token):
        known = [audience for audience in audiences if audience == API_AUDIENCE]
        return {"authenticated": bool(known), "user": _ADMINISTRATOR, "audiences": known} if known else _unknown()
    for audience in audiences:
        try:
            claims = tokens.verify(token, audience)
        except Unauthorized:
            continue
        common = [one for one in audiences if one in claims["aud"]]
        return {"authenticated": True, "user": user_of(claims), "audiences": common}
    return _unknown()


def user_of(claims: Obj) -> Obj:
    """The user info of a service account token."""
    bound: Any = claims.get("kubernetes.io") or {}
    namespace, account = bound.get("namespace", ""), bound.get("serviceaccount") or {}
    user: Obj = {
        "username": claims.get("sub", ""),
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
    }
    if account.get("uid"):
        user["uid"] = account["uid"]
    pod = bound.get("pod")
    if pod:
        extra = {f"authentication.kubernetes.io/pod-{part}": [pod[part]] for part in ("name", "uid") if pod.get(part)}
        user["extra"] = extra
    return user


def _unknown() -> Obj:
    return {"authenticated": False, "user": {}, "error": "[invalid bearer token]"}
