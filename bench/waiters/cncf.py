"""The peer, in an environment of its own: the Job trigger of Airflow's cncf.kubernetes provider for each job, on one event loop."""

from __future__ import annotations

import asyncio
import json
import os

from protocol import Measured

measured = Measured()
extra = {"kube_config_path": os.environ["KUBECONFIG"]}
os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger  # noqa: E402

POLL_SECONDS = 10.0
"""Its own default."""


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
        measured.end(job["name"])


asyncio.run(measured.wait_for_all(wait))
