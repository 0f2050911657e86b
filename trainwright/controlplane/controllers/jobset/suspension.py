"""Updates of a suspended Job from its JobSet when it is resumed."""

from __future__ import annotations

from typing import Any

from trainwright.api.objects import Obj


def resume_patch(job: Obj, replicated: Obj) -> Obj:
    """Return the merge patch of the Job's spec that resumes it and applies changes of the JobSet's template.

    Labels, annotations, node selector, tolerations and scheduling gates are added and replaced, never removed.
    """
    desired, present = replicated["template"]["spec"]["template"], job["spec"]["template"]
    metadata, spec = desired.get("metadata") or {}, desired.get("spec") or {}
    template: Obj = {}
    for part in ("labels", "annotations"):
        if metadata.get(part):
            template.setdefault("metadata", {})[part] = metadata[part]
    if spec.get("nodeSelector"):
        template.setdefault("spec", {})["nodeSelector"] = spec["nodeSelector"]
    for part in ("tolerations", "schedulingGates"):
        before = (present.get("spec") or {}).get(part) or []
        after = _union(before, spec.get(part) or [])
        if after != before:
            template.setdefault("spec", {})[part] = after
    return {"suspend": False} | ({"template": template} if template else {})


def _union(present: list[Any], added: list[Any]) -> list[Any]:
    return [*present, *(entry for entry in added if entry not in present)]
