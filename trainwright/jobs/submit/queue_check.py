"""Checks, before a job is created suspended, that something will start it: its queue exists."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import CONFIG_MAP
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.waiting_reason import NO_KUEUE
from trainwright.jobs.state.kubernetes_events import local_queues
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.suggest import suggest


class QueueNotFound(ValueError):
    """Nothing serves the queue of a job: it would wait for ever."""


def check_queue(client: JobsClient, cluster: Cluster, queue: str, namespace: str) -> None:
    """Check that a queue exists, in the namespace of the job; `cluster` is that of the client, with retries.

    An embedded cluster may have queues; one in this process is not checked. Without the permission, nothing is. Raises QueueNotFound,
    ApiError.
    """
    if not queue or not client.has_api_server():
        return
    try:
        known = local_queues(cluster, namespace)
        if known is None and client.is_embedded():
            _check_own_queues(cluster, queue)
        else:
            check_known_queue(known, queue, namespace)
    except Forbidden:  # the wait finds out
        return


def check_known_queue(known: list[str] | None, queue: str, namespace: str) -> None:
    """Raise QueueNotFound unless the queue is among those of the namespace; they are None without Kueue. Pure."""
    if known is None:
        raise QueueNotFound(f"placement.queue_name: {queue!r}: {NO_KUEUE}: install Kueue, or leave queue_name out")
    if queue not in known:
        advice = suggest(queue, known) or "create a LocalQueue, or leave queue_name out"
        raise QueueNotFound(f"placement.queue_name: the namespace {namespace} has no LocalQueue {queue!r}: {advice}")


def _check_own_queues(cluster: Cluster, queue: str) -> None:
    """Raise QueueNotFound on an embedded cluster without queues; one without this queue says so on the job."""
    namespace, name = names.QUEUES_CONFIG_MAP
    try:
        cluster.get(CONFIG_MAP, name, namespace)
    except NotFound:
        advice = "start the cluster with `trainwright up --queues FILE`, or leave queue_name out"
        raise QueueNotFound(
            f"placement.queue_name: {queue!r}: this cluster has no queues, so nothing starts the job: {advice}"
        ) from None
