"""Aborts multipart uploads of killed processes. Their parts appear in no listing and cost money until they are aborted."""

from __future__ import annotations

import logging
from typing import Any

from trainwright.storage.errors import NoAccess, NotFound, NotSupported
from trainwright.storage.objects.errors import boto3_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


def abort_incomplete_uploads(client: Any, uri: StorageUri) -> int:
    """Abort all incomplete uploads below a prefix that only the caller writes to. Returns their number.

    Without permission to list uploads they are left to the bucket's lifecycle rules. Raises StorageError.
    """
    location = {"Bucket": uri.bucket, "Prefix": f"{uri.key}/"}
    aborted = 0
    try:
        with boto3_errors(uri):
            for page in client.get_paginator("list_multipart_uploads").paginate(**location):
                for upload in page.get("Uploads") or []:
                    aborted += _abort(client, uri, upload)
    except (NoAccess, NotSupported) as error:
        log.info("incomplete uploads cannot be listed uri=%s error=%s", uri, error)
    return aborted


def _abort(client: Any, uri: StorageUri, upload: dict[str, str]) -> int:
    try:
        with boto3_errors(uri):
            client.abort_multipart_upload(Bucket=uri.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    except NotFound:  # completed or aborted meanwhile
        return 0
    log.info("incomplete upload aborted uri=s3://%s/%s", uri.bucket, upload["Key"])
    return 1
