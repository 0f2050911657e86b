"""The key of a TrainJob's data cache: a Secret, and a reference to it in the trainer's containers.

The control plane makes it, so that no service account of a pod needs a right to Secrets. Trainer's cache has no key.
"""

from __future__ import annotations

from base64 import b64encode

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft, owned_object, upsert_env


class DataCachePolicy:
    name = "data-cache"

    def enforce_pod_spec(self, draft: Draft) -> None:
        pods, given = draft.trainer_pods(), _initializer_variables(draft)
        if pods is None or not _has_cache(draft) or given.get(names.CACHE_OPEN_VARIABLE) == "true":
            return  # readers of an open cache connect as those of Trainer's
        reference = {"name": names.cache_secret(draft.name), "key": names.CACHE_KEY_ENTRY}
        for container in pods.pod_spec.get("containers") or []:
            upsert_env(container, [{"name": names.CACHE_KEY_VARIABLE, "valueFrom": {"secretKeyRef": reference}}])

    def build(self, draft: Draft) -> None:
        if not _has_cache(draft):
            return
        values = {names.CACHE_KEY_ENTRY: draft.keys.tls(names.CACHE_HOST), names.CACHE_ASSIGN_ENTRY: draft.keys.token()}
        data = {name: b64encode(text.encode()).decode() for name, text in values.items()}
        secret = owned_object(draft, "v1", "Secret", names.cache_secret(draft.name))
        draft.companions.append(secret | {"type": "Opaque", "immutable": True, "data": data})


def _has_cache(draft: Draft) -> bool:
    return draft.settings.cache_keys and _initializer_variables(draft).get("STORAGE_URI", "").startswith(names.CACHE_SCHEME)


def _initializer_variables(draft: Draft) -> dict[str, str]:
    """Return the variables that the dataset's initializer will have: those of the runtime, and over them those of the TrainJob."""
    pods = next((pods for pods in draft.pod_sets if pods.ancestor == names.ANCESTOR_DATASET), None)
    container = pods.container(names.ANCESTOR_DATASET) if pods is not None else None
    dataset: Obj = (draft.trainjob["spec"].get("initializer") or {}).get("dataset") or {}
    uri = {"name": "STORAGE_URI", "value": dataset["storageUri"]} if dataset.get("storageUri") is not None else None
    entries = [*((container or {}).get("env") or []), *([uri] if uri else []), *(dataset.get("env") or [])]
    return {entry["name"]: str(entry.get("value") or "") for entry in entries} if container is not None else {}
