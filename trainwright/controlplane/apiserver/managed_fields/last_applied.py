"""Migration from client-side to server-side apply through kubectl's last-applied-configuration annotation.

kubectl may take over fields in the annotation that are unchanged since, whichever manager owns them.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainwright.api.objects import Obj, annotations_of
from trainwright.api.schema.types import Schema
from trainwright.controlplane.apiserver.managed_fields.field_diff import changes, fields_of
from trainwright.controlplane.apiserver.managed_fields.field_set import Fields, difference

_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"


def fields_to_take_over(manager: str, schema: Schema, live: Obj) -> Fields:
    """The fields that an applier may take over from other managers without a conflict."""
    last = _last_applied(live) if manager == _KUBECTL else None
    if not isinstance(last, dict):
        return {}
    return difference(fields_of(schema, last), changes(schema, last, live).modified)


def update_last_applied(manager: str, live: Obj, applied: Obj, config: Obj) -> Obj:
    """The applied object with an existing annotation updated, so that users can return to client-side apply."""
    if manager != _KUBECTL or _ANNOTATION not in annotations_of(live):
        return applied
    metadata = applied["metadata"]
    text = orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    return {**applied, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), _ANNOTATION: text}}}


def _last_applied(live: Obj) -> Any:
    text = annotations_of(live).get(_ANNOTATION)
    try:
        return orjson.loads(text) if text else None
    except ValueError:
        return None
