"""Finds the webhooks of a Trainer whose manager is gone, and removes them if asked to.

They fail closed: with nobody behind them the API server refuses every TrainJob, so a controller in the manager's place has nothing
to do and no error to show.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import ENDPOINT_SLICE, TRAINJOB, Kind
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.cluster.protocol import Cluster

GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS = (
    (Kind(GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False), "defaulter"),
    (Kind(GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False), "validator"),
)
"""The kinds, and the first words of the names under which Trainer installs them."""
RIGHTS = "deploy/controller/take-over-webhooks.yaml"
log = logging.getLogger(__name__)


def check_webhooks(cluster: Cluster, *, removes: bool) -> None:
    """Warn of Trainer's webhooks for TrainJobs that nobody answers; with `removes` delete their configurations.

    For the time when no manager of Trainer is active. Errors are logged: a controller without these rights still reconciles the jobs
    that exist.
    """
    try:
        dead = list(_dead_configurations(cluster))
    except ApiError as error:
        log.info("event=upstream_webhooks_not_checked error=%s", error.message)
        return
    for kind, configuration in dead:
        if not removes:
            log.warning(
                "event=upstream_webhooks_without_endpoints %s=%s: the API server refuses every TrainJob while Trainer's manager is "
                "gone. Start that manager, or remove its webhooks: `kubectl delete %s %s`, or --take-over-webhooks with %s",
                *(kind.singular, name_of(configuration), kind.singular, name_of(configuration), RIGHTS),
            )
            continue
        try:
            cluster.delete(kind, name_of(configuration), uid=uid_of(configuration))
        except NotFound:
            continue
        except ApiError as error:
            log.error(
                "event=upstream_webhooks_not_removed name=%s error=%s rights=%s", name_of(configuration), error.message, RIGHTS
            )
        else:
            log.warning("event=upstream_webhooks_removed %s=%s", kind.singular, name_of(configuration))


def _dead_configurations(cluster: Cluster) -> Iterator[tuple[Kind, Obj]]:
    """Yield the configurations of Trainer of which a webhook for TrainJobs fails closed and has no endpoint. Raises ApiError."""
    for kind, word in CONFIGURATIONS:
        try:
            configuration = cluster.get(kind, f"{word}.{TRAINJOB.group}")
        except NotFound:
            continue
        if any(_fails_closed(webhook) and not _has_endpoint(cluster, webhook) for webhook in configuration.get("webhooks") or []):
            yield kind, configuration


def _fails_closed(webhook: Obj) -> bool:
    """Whether this webhook is asked about new TrainJobs, and its silence refuses them. `Fail` is the API's default."""
    concerns_trainjobs = any(
        {TRAINJOB.group, "*"} & set(rule.get("apiGroups") or [])
        and {TRAINJOB.plural, "*", "*/*"} & set(rule.get("resources") or [])
        and {"CREATE", "*"} & set(rule.get("operations") or [])
        for rule in webhook.get("rules") or []
    )
    return concerns_trainjobs and webhook.get("failurePolicy", "Fail") == "Fail"


def _has_endpoint(cluster: Cluster, webhook: Obj) -> bool:
    """Whether a pod is ready behind the webhook's Service; True for a URL, of which the cluster knows nothing. Raises ApiError."""
    service = (webhook.get("clientConfig") or {}).get("service")
    if not service:
        return True
    selector = f"kubernetes.io/service-name={service['name']}"
    slices = cluster.list(ENDPOINT_SLICE, service["namespace"], label_selector=selector).items
    endpoints = [endpoint for found in slices for endpoint in found.get("endpoints") or []]
    return any((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)
