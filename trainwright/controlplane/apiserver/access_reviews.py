"""SelfSubjectAccessReview: may I? Whoever has got as far as asking is the administrator of this cluster, and may."""

from __future__ import annotations

from typing import Any

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.objects import Obj

GROUP, VERSION, KIND, PLURAL = "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"


def reviewed(review: Any) -> Obj:
    """The review with its answer. Raises BadRequest, and Invalid for one that asks about nothing."""
    if not isinstance(review, dict) or review.get("kind", KIND) != KIND:
        raise BadRequest(f"the object provided is unrecognized (must be of type {KIND})")
    spec = review.get("spec") or {}
    if not isinstance(spec, dict):
        raise BadRequest(f"the object provided is unrecognized (must be of type {KIND}): spec is an object")
    asked = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(asked) != 1:
        message = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise Invalid.of(KIND, "", [Problem("spec.resourceAttributes", message)], GROUP)
    return {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": True, "reason": "the token of the kubeconfig is an administrator's"},
    }


def resource_list() -> Obj:
    """What `/apis/authorization.k8s.io/v1` serves."""
    entry = {"name": PLURAL, "singularName": KIND.lower(), "namespaced": False, "kind": KIND, "verbs": ["create"]}
    return {"kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}", "resources": [entry], "apiVersion": "v1"}


def group() -> Obj:
    """The group as `/apis` lists it."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def group_discovery() -> Obj:
    """The group as aggregated discovery tells it."""
    resource = {
        "resource": PLURAL,
        "responseKind": {"group": "", "version": "", "kind": KIND},
        "scope": "Cluster",
        "singularResource": KIND.lower(),
        "verbs": ["create"],
    }
    return {"metadata": {"name": GROUP}, "versions": [{"version": VERSION, "freshness": "Current", "resources": [resource]}]}
