"""A claim is not taken from the pods that use it: it goes when the last of them has gone."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.objects import Obj, is_deleting, name_of

PROTECTED = "kubernetes.io/pvc-protection"
_ENDED = ("Succeeded", "Failed")


def unprotected(claim: Obj, pods: Iterable[Obj]) -> Obj | None:
    """The claim without its protection, as a new value; None where it needs it, or has none."""
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if not is_deleting(claim) or PROTECTED not in finalizers or any(_uses(pod, name_of(claim)) for pod in pods):
        return None
    left = [entry for entry in finalizers if entry != PROTECTED]
    kept = {key: value for key, value in metadata.items() if key != "finalizers"}
    return {**claim, "metadata": {**kept, "finalizers": left} if left else kept}


def _uses(pod: Obj, claim: str) -> bool:
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return False
    volumes = (pod.get("spec") or {}).get("volumes") or []
    return any((volume.get("persistentVolumeClaim") or {}).get("claimName") == claim for volume in volumes)
