"""SelfSubjectReview and TokenReview."""

from __future__ import annotations

from trainwright.api.errors import BadRequest, Unauthorized
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.authorizer import ADMINISTRATOR, Caller, service_account_user
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE

GROUP = "authentication.k8s.io"


def review_self(_review: Obj, caller: Caller) -> Obj:
    """The status of a SelfSubjectReview."""
    return {"userInfo": caller.user.info}


def review_token(review: Obj, caller: Caller) -> Obj:
    """The status of a TokenReview. Raises BadRequest."""
    spec = review.get("spec") or {}
    token, audiences = spec.get("token"), spec.get("audiences") or [API_AUDIENCE]
    if not isinstance(token, str) or not token:
        raise BadRequest("token is required for TokenReview in authentication")
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise BadRequest("audiences is a list of strings")
    if caller.authenticator.is_admin(token):
        known = [audience for audience in audiences if audience == API_AUDIENCE]
        return {"authenticated": bool(known), "user": ADMINISTRATOR.info, "audiences": known} if known else _unknown()
    for audience in audiences:
        try:
            claims = caller.authenticator.verify(token, audience)
        except Unauthorized:
            continue
        common = [one for one in audiences if one in claims["aud"]]
        return {"authenticated": True, "user": service_account_user(claims).info, "audiences": common}
    return _unknown()


def _unknown() -> Obj:
    return {"authenticated": False, "user": {}, "error": "[invalid bearer token]"}
