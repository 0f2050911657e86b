"""Progress reports: sets the server's URL and mounts a token and the CA certificate in the trainer's containers.

Source: Trainer's TrainJobStatus plugin (reference section 3.5). transformers implements this protocol.
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft, owned_object, upsert_env, upsert_mount, upsert_volume

_EXPIRY_SECONDS = 3600
_CA_KEY = "ca.crt"


class ProgressPolicy:
    name = "trainjobstatus"

    def enforce_pod_spec(self, draft: Draft) -> None:
        progress, pods = draft.settings.progress, draft.trainer_pods()
        if progress is None or pods is None:
            return
        audience = names.progress_audience(draft.namespace, draft.name)
        for container in pods.pod_spec.get("containers") or []:
            upsert_env(container, _variables(f"{progress.server}/apis/{audience}"))
            upsert_mount(container, {"name": names.TOKEN_VOLUME, "mountPath": names.TOKEN_MOUNT, "readOnly": True})
        token = {"audience": audience, "expirationSeconds": _EXPIRY_SECONDS, "path": "token"}
        ca = {"name": f"{draft.name}{names.TLS_CONFIG_SUFFIX}", "items": [{"key": _CA_KEY, "path": _CA_KEY}]}
        sources = [{"serviceAccountToken": token}, {"configMap": ca}]
        upsert_volume(pods.pod_spec, {"name": names.TOKEN_VOLUME, "projected": {"sources": sources}})

    def build(self, draft: Draft) -> None:
        progress = draft.settings.progress
        if progress is None:
            return
        config = owned_object(draft, "v1", "ConfigMap", f"{draft.name}{names.TLS_CONFIG_SUFFIX}")
        draft.companions.append(config | {"data": {_CA_KEY: progress.ca_certificate}})


def _variables(url: str) -> list[Obj]:
    return [
        {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": url},
        {"name": "KUBEFLOW_TRAINER_SERVER_CA_CERT", "value": f"{names.TOKEN_MOUNT}/{_CA_KEY}"},
        {"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": f"{names.TOKEN_MOUNT}/token"},
    ]
