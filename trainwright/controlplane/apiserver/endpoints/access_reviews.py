"""What a user may do: SelfSubjectAccessReview, SubjectAccessReview and SelfSubjectRulesReview."""

from __future__ import annotations

from typing import Any

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.authorizer import Access, Caller, User

GROUP = "authorization.k8s.io"
_EVERYTHING = ["*"]


def review_access(review: Obj, caller: Caller) -> Obj:
    """The status of a SelfSubjectAccessReview. Raises BadRequest, Invalid without exactly one kind of attributes."""
    return _status(_access(review, "SelfSubjectAccessReview"), caller.user, caller)


def review_subject_access(review: Obj, caller: Caller) -> Obj:
    """The status of a SubjectAccessReview, for the user and groups of its spec. Raises as `review_access` does."""
    spec = review.get("spec") or {}
    name, groups = spec.get("user") or "", spec.get("groups") or []
    if not isinstance(name, str) or not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise BadRequest("spec.user is a string, spec.groups a list of strings")
    if not name and not groups:
        why = "Required value: at least one of user or group must be specified"
        raise Invalid.of("SubjectAccessReview", "", [Problem("spec.user", why, "FieldValueRequired")], GROUP)
    return _status(_access(review, "SubjectAccessReview"), User(name, tuple(groups)), caller)


def review_rules(review: Obj, caller: Caller) -> Obj:
    """The status of a SelfSubjectRulesReview. Raises BadRequest."""
    namespace = (review.get("spec") or {}).get("namespace")
    if not isinstance(namespace, str) or not namespace:
        raise BadRequest("no namespace on request")
    if caller.user.is_administrator:
        return {
            "resourceRules": [{"verbs": _EVERYTHING, "apiGroups": _EVERYTHING, "resources": _EVERYTHING}],
            "nonResourceRules": [{"verbs": _EVERYTHING, "nonResourceURLs": _EVERYTHING}],
            "incomplete": False,
        }
    rules = list(caller.authorizer.rules(caller.user, namespace))
    return {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }


def _status(access: Access, user: User, caller: Caller) -> Obj:
    if user.is_administrator:
        return {"allowed": True, "reason": "the user is an administrator"}
    return {"allowed": caller.authorizer.allows(user, access)}


def _access(review: Obj, kind: str) -> Access:
    spec = review.get("spec") or {}
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        message = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise Invalid.of(kind, "", [Problem("spec.resourceAttributes", message)], GROUP)
    attributes: Any = spec[asked[0]]
    if not isinstance(attributes, dict):
        raise BadRequest(f"spec.{asked[0]} is an object")

    def text(name: str) -> str:
        value = attributes.get(name)
        if value is not None and not isinstance(value, str):
            raise BadRequest(f"spec.{asked[0]}.{name} is a string")
        return value or ""

    if asked[0] == "nonResourceAttributes":
        return Access(text("verb"), path=text("path"))
    resource = "/".join(filter(None, (text("resource"), text("subresource"))))
    return Access(text("verb"), text("group"), resource, text("name"), text("namespace"))
