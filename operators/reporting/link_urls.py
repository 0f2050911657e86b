"""Where a browser can look at an export, in the console of its store, and at a TrainJob, on the page of Trainwright."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from trainwright.cli.page_link import page_address
from trainwright.cluster import connect
from trainwright.embedded.home import Home
from trainwright.operators.values.connections import ClusterSettings
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri

_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")


def browsable_url(uri: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the http(s) URL of a folder in a store; empty for a store without a console, and for what is no URI.

    `variables` are those of the task's connection to the store, besides the environment: behind an endpoint of its own, a bucket
    is not Amazon's.
    """
    try:
        parsed = StorageUri.parse(uri)
    except BadUri:  # a link fails no task
        return ""
    bucket, _, key = parsed.location.partition("/")
    if parsed.scheme == "s3" and not any({**os.environ, **(variables or {})}.get(name) for name in _ENDPOINTS):
        prefix = f"?prefix={quote(key.rstrip('/'), safe='')}/" if key else ""
        return f"https://console.aws.amazon.com/s3/buckets/{quote(bucket, safe='')}{prefix}"
    if parsed.scheme == "gs":
        return f"https://console.cloud.google.com/storage/browser/{quote(f'{bucket}/{key}'.rstrip('/'))}"
    if parsed.scheme in ("http", "https") and urlsplit(uri).username is None:  # no link shows credentials
        return str(parsed)
    return ""


def page_templates(settings: ClusterSettings) -> tuple[str, str]:
    """Return the templates of links to a job and to its logs on the page of the cluster; empty if this machine serves none.

    A link has no code: the browser needs a session of the page. Raises NoCluster.
    """

    def host() -> str:
        return connect(settings.kubeconfig or None, context=settings.context or None, in_cluster=settings.in_cluster).host

    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    if kubeconfig is None and settings.submission_mode == "embedded":
        kubeconfig = Home.chosen().kubeconfig
    page = page_address(kubeconfig, host)
    return (f"{page}#/jobs/{{namespace}}/{{name}}", f"{page}#/jobs/{{namespace}}/{{name}}/logs") if page else ("", "")
