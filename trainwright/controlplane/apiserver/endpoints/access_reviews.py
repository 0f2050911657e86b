"""SelfSubjectAccessReview and SelfSubjectRulesReview. Only the administrator can authenticate, so everything is allowed."""

from __future__ import annotations

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.tokens import Tokens

GROUP = "authorization.k8s.io"
_EVERYTHING = ["*"]


def review_access(review: Obj, _tokens: Tokens) -> Obj:
    """The status of a SelfSubjectAccessReview. Raises Invalid without exactly one kind of attributes."""
    spec = review.get("spec") or {}
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        message = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise Invalid.of("SelfSubjectAccessReview", "", [Problem("spec.resourceAttributes", message)], GROUP)
    return {"allowed": True, "reason": "the token of the kubeconfig is an administrator's"}


def review_rules(review: Obj, _tokens: Tokens) -> Obj:
    """The status of a SelfSubjectRulesReview. Raises BadRequest."""
    if not (review.get("spec") or {}).get("namespace"):
        raise BadRequest("no namespace on request")
    return {
        "resourceRules": [{"verbs": _EVERYTHING, "apiGroups": _EVERYTHING, "resources": _EVERYTHING}],
        "nonResourceRules": [{"verbs": _EVERYTHING, "nonResourceURLs": _EVERYTHING}],
        "incomplete": False,
    }
