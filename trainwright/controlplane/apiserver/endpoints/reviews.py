"""Review resources: created with a spec, never stored, and returned with the computed status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.authorizer import Caller
from trainwright.controlplane.apiserver.endpoints import access_reviews, identity_reviews

_VERSION = "v1"


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


REVIEWS = (
    Review(access_reviews.GROUP, "SelfSubjectAccessReview", access_reviews.review_access),
    Review(access_reviews.GROUP, "SubjectAccessReview", access_reviews.review_subject_access),
    Review(access_reviews.GROUP, "SelfSubjectRulesReview", access_reviews.review_rules),
    Review(identity_reviews.GROUP, "SelfSubjectReview", identity_reviews.review_self),
    Review(identity_reviews.GROUP, "TokenReview", identity_reviews.review_token),
)
GROUPS = tuple(dict.fromkeys(review.group for review in REVIEWS))


def review_at(parts: list[str]) -> Review | None:
    """The review resource at a path, or None."""
    for review in REVIEWS:
        if parts == ["apis", review.group, _VERSION, review.plural]:
            return review
    return None


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
