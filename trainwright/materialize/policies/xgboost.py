"""The XGBoost policy: the tracker's address and how many workers report to it; as many workers a node as it has GPUs.

The TrainJob's own variables come first: the plain policy puts them there. Source: Trainer's xgboost plugin (reference
sections 2.12, 4.2 rule 25).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft
from trainwright.materialize.rendezvous import literal, main_host, pod_number
from trainwright.materialize.resources import counted_resources, gpu_count
from trainwright.materialize.upsert import upsert_env, upsert_port

RESERVED = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")


class XGBoostPolicy:
    name = "xgboost"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        if draft.policy("xgboost") is None:
            return
        for index, variable in enumerate((draft.trainer or {}).get("env") or []):
            if variable["name"] in RESERVED:
                message = f"Forbidden: {variable['name']} is reserved for the XGBoost runtime"
                yield Problem(f"spec.trainer.env[{index}]", message, "FieldValueForbidden")

    def enforce_ml_policy(self, draft: Draft) -> None:
        pods = draft.trainer_pods()
        if draft.policy("xgboost") is None or draft.trainer is None or pods is None:
            return
        container = pods.container(names.NODE)
        if container is None:
            return
        workers = pods.count * max(gpu_count(counted_resources(draft)), 1)
        variables = [
            literal("DMLC_TRACKER_URI", main_host(draft)),
            literal("DMLC_TRACKER_PORT", names.RENDEZVOUS_PORT),
            pod_number("DMLC_TASK_ID"),
            literal("DMLC_NUM_WORKER", workers),
        ]
        upsert_env(container, variables)
        upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
