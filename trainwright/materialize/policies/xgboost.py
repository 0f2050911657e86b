"""The XGBoost policy: the tracker's address and the number of workers, one per GPU.

The TrainJob's variables come first; the plain policy adds them. Source: Trainer's xgboost plugin (reference
sections 2.12, 4.2 rule 25).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft, upsert_env, upsert_port
from trainwright.materialize.resources import gpu_count, index_variable, main_host, resources_for_process_count, value_variable

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
        workers = pods.count * max(gpu_count(resources_for_process_count(draft)), 1)
        variables = [
            value_variable("DMLC_TRACKER_URI", main_host(draft)),
            value_variable("DMLC_TRACKER_PORT", names.RENDEZVOUS_PORT),
            index_variable("DMLC_TASK_ID"),
            value_variable("DMLC_NUM_WORKER", workers),
        ]
        upsert_env(container, variables)
        upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
