"""Tells from the name of a step's node which ends of a step the server tries again: servers of Kubeflow Pipelines differ.

Argo merges the retry strategy of the server's `templateDefaults` (2.17: two tries, `OnError`) into that of every task, so that a
failure is not retried whatever `set_retry` says. Without these defaults only `set_retry` counts, which retries failures, but no lost
pods.
"""

from __future__ import annotations

import enum
import re


class ServerRetries(enum.StrEnum):
    """What the server tries again, as installed."""

    lost_pods = (
        "this server tries a step again only when its pod was lost, whatever set_retry says: set limits.job_retries to submit a "
        "failed job again from its checkpoint, or run the pipeline again with this run_id"
    )
    failures = (
        "this server tries a failed step again as often as set_retry says, and none whose pod was lost; each try submits the job "
        "again from its checkpoint, and so does limits.job_retries without a new try of the step"
    )
    unknown = ""


def server_retries(node: str, workflow: str) -> ServerRetries:
    """Return what the server retries: with `templateDefaults`, every part of a node's name has the number of its try. Pure."""
    if not workflow or not node.startswith(workflow):
        return ServerRetries.unknown
    has_defaults = re.match(r"\(\d+\)", node[len(workflow) :]) is not None
    return ServerRetries.lost_pods if has_defaults else ServerRetries.failures
