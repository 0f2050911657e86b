"""Where a browser can look at an export: the console of its store, if it has one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")


def browsable_url(uri: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the http(s) URL of a folder in a store; empty for a store without a console, and for what is no URI.

    `variables` are those of the task's connection to the store, besides the environment: behind an endpoint of its own, a bucket
    is not Amazon's.
    """
    from trainwright.storage.errors import BadUri
    from trainwright.storage.uri import StorageUri

    try:
        parsed = StorageUri.parse(uri)
    except BadUri:
        return ""
    bucket, _, key = parsed.location.partition("/")
    if parsed.scheme == "s3" and not any({**os.environ, **(variables or {})}.get(name) for name in _ENDPOINTS):
        prefix = f"?prefix={quote(key.rstrip('/'), safe='')}/" if key else ""
        return f"https://console.aws.amazon.com/s3/buckets/{quote(bucket, safe='')}{prefix}"
    if parsed.scheme == "gs":
        return f"https://console.cloud.google.com/storage/browser/{quote(f'{bucket}/{key}'.rstrip('/'))}"
    if parsed.scheme in ("http", "https") and urlsplit(uri).username is None:
        return str(parsed)
    return ""
