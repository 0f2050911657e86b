"""The baseline, in its own environment: the Job trigger of Airflow's cncf.kubernetes provider per job, on one event loop."""

from __future__ import annotations

import asyncio
import json
import os

from protocol import Reporter

reporter = Reporter()
extra = {"kube_config_path": os.environ["KUBECONFIG"]}
os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger  # noqa: E402

POLL_SECONDS = 10.0
"""Default of the trigger."""


async def wait(job: dict[str, str]) -> None:
    trigger = KubernetesJobTrigger(
        job_name=job["name"],
        job_namespace=job["namespace"],
        pod_names=[],
        pod_namespace=job["namespace"],
        base_container_name="node",
        kubernetes_conn_id="kubernetes_default",
        poll_interval=POLL_SECONDS,
        get_logs=False,
        do_xcom_push=False,
    )
    async for _ in trigger.run():
        reporter.end(job["name"])


asyncio.run(reporter.wait_for_all(wait))
