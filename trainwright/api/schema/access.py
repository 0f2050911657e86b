"""Schemas of the kinds of RBAC: roles, and what binds them to accounts."""

from __future__ import annotations

from trainwright.api.kinds import RBAC
from trainwright.api.schema.core import whole_object
from trainwright.api.schema.references import LABEL_SELECTOR
from trainwright.api.schema.types import STRING, STRINGS, ListOf, Schema, String, Struct

_RULE = Struct(
    {"apiGroups": STRINGS, "nonResourceURLs": STRINGS, "resourceNames": STRINGS, "resources": STRINGS, "verbs": STRINGS},
    ("verbs",),
    type_name="PolicyRule",
)
_SUBJECT = Struct(
    {"apiGroup": STRING, "kind": STRING, "name": STRING, "namespace": STRING},
    ("kind", "name"),
    type_name="Subject",
    atomic=True,
)
_ROLE_REF = Struct(
    {"apiGroup": String(default=RBAC), "kind": STRING, "name": STRING},
    ("kind", "name"),
    type_name="RoleRef",
    atomic=True,
)
_AGGREGATION: Schema = Struct({"clusterRoleSelectors": ListOf(LABEL_SELECTOR)}, type_name="AggregationRule")
ROLE = whole_object(rules=ListOf(_RULE))
CLUSTER_ROLE = whole_object(aggregationRule=_AGGREGATION, rules=ListOf(_RULE))
BINDING = whole_object(roleRef=_ROLE_REF, subjects=ListOf(_SUBJECT))
