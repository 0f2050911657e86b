"""Review resources: created with a spec, never stored, and returned with the computed status.

What a user may do is in SelfSubjectAccessReview, SubjectAccessReview and SelfSubjectRulesReview; who the user is, in SelfSubjectReview
and TokenReview.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import BadRequest, Invalid, Problem, Unauthorized
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.authorizer import ADMINISTRATOR, Access, Caller, User, service_account_user
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE

_VERSION = "v1"
AUTHORIZATION = "authorization.k8s.io"
_EVERYTHING = ["*"]
AUTHENTICATION = "authentication.k8s.io"


@dataclass(frozen=True)
class Review:
    """A review resource."""

    group: str
    kind: str
    answer: Callable[[Obj, Caller], Obj]

    @property
    def plural(self) -> str:
        return self.kind.lower() + "s"

    def complete(self, review: Any, caller: Caller) -> Obj:
        """The review with its status. Raises BadRequest, Invalid."""
        unrecognised = f"the object provided is unrecognized (must be of type {self.kind})"
        if not isinstance(review, dict) or review.get("kind", self.kind) != self.kind:
            raise BadRequest(unrecognised)
        spec = review.get("spec") or {}
        if not isinstance(spec, dict):
            raise BadRequest(f"{unrecognised}: spec is an object")
        head = {"kind": self.kind, "apiVersion": f"{self.group}/{_VERSION}", "metadata": {}}
        body = {"spec": spec} if self.kind != "SelfSubjectReview" else {}
        return {**head, **body, "status": self.answer(review, caller)}


def review_at(parts: list[str]) -> Review | None:
    """The review resource at a path, or None."""
    for review in REVIEWS:
        if parts == ["apis", review.group, _VERSION, review.plural]:
            return review
    return None


def review_subject_access(review: Obj, caller: Caller) -> Obj:
    """The status of a SubjectAccessReview, for the user and groups of its spec. Raises as `review_access` does."""
    spec = review.get("spec") or {}
    name, groups = spec.get("user") or "", spec.get("groups") or []
    if not isinstance(name, str) or not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise BadRequest("spec.user is a string, spec.groups a list of strings")
    if not name and not groups:
        why = "Required value: at least one of user or group must be specified"
        raise Invalid.of("SubjectAccessReview", "", [Problem("spec.user", why, "FieldValueRequired")], AUTHORIZATION)
    return _status(_requested_access(review, "SubjectAccessReview"), User(name, tuple(groups)), caller)


def _status(access: Access, user: User, caller: Caller) -> Obj:
    if user.is_administrator:
        return {"allowed": True, "reason": "the user is an administrator"}
    return {"allowed": caller.authorizer.allows(user, access)}


def _requested_access(review: Obj, kind: str) -> Access:
    spec = review.get("spec") or {}
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        message = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise Invalid.of(kind, "", [Problem("spec.resourceAttributes", message)], AUTHORIZATION)
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


def review_self(_review: Obj, caller: Caller) -> Obj:
    """The status of a SelfSubjectReview."""
    return {"userInfo": caller.user.info}


def review_access(review: Obj, caller: Caller) -> Obj:
    """The status of a SelfSubjectAccessReview. Raises BadRequest, Invalid without exactly one kind of attributes."""
    return _status(_requested_access(review, "SelfSubjectAccessReview"), caller.user, caller)


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
        except Unauthorized:  # for another audience, or nobody's: the next audience may know it
            continue
        common = [one for one in audiences if one in claims["aud"]]
        return {"authenticated": True, "user": service_account_user(claims).info, "audiences": common}
    return _unknown()


def _unknown() -> Obj:
    return {"authenticated": False, "user": {}, "error": "[invalid bearer token]"}


REVIEWS = (
    Review(AUTHORIZATION, "SelfSubjectAccessReview", review_access),
    Review(AUTHORIZATION, "SubjectAccessReview", review_subject_access),
    Review(AUTHORIZATION, "SelfSubjectRulesReview", review_rules),
    Review(AUTHENTICATION, "SelfSubjectReview", review_self),
    Review(AUTHENTICATION, "TokenReview", review_token),
)
GROUPS = tuple(dict.fromkeys(review.group for review in REVIEWS))


def resource_list(group: str, version: str) -> Obj | None:
    """The APIResourceList of `/apis/GROUP/v1`; None for other groups."""
    if group not in GROUPS or version != _VERSION:
        return None
    resources = [
        {
            "name": review.plural,
            "singularName": review.kind.lower(),
            "namespaced": False,
            "kind": review.kind,
            "verbs": ["create"],
        }
        for review in REVIEWS
        if review.group == group
    ]
    return {"kind": "APIResourceList", "groupVersion": f"{group}/{_VERSION}", "resources": resources, "apiVersion": "v1"}


def group(name: str) -> Obj:
    """The APIGroup in `/apis`."""
    version = {"groupVersion": f"{name}/{_VERSION}", "version": _VERSION}
    return {"name": name, "versions": [version], "preferredVersion": version}


def group_discovery(name: str) -> Obj:
    """The group in aggregated discovery."""
    resources = [
        {
            "resource": review.plural,
            "responseKind": {"group": "", "version": "", "kind": review.kind},
            "scope": "Cluster",
            "singularResource": review.kind.lower(),
            "verbs": ["create"],
        }
        for review in REVIEWS
        if review.group == name
    ]
    return {"metadata": {"name": name}, "versions": [{"version": _VERSION, "freshness": "Current", "resources": resources}]}
