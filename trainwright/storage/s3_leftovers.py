"""Parts of large files whose upload was killed: no listing shows them, and they cost money until somebody gives them up."""

from __future__ import annotations

import logging
from typing import Any

from trainwright.storage.errors import NoAccess, NotSupported, NotThere
from trainwright.storage.s3_errors import control_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


def give_up_uploads(client: Any, uri: StorageUri) -> int:
    """Abort every unfinished upload below a folder that is the caller's alone; returns how many there were.

    Who may not list uploads leaves them to the bucket's lifecycle rules. Raises StorageError where the store fails.
    """
    place = {"Bucket": uri.bucket, "Prefix": f"{uri.key}/"}
    given_up = 0
    try:
        with control_errors(uri):
            for page in client.get_paginator("list_multipart_uploads").paginate(**place):
                for upload in page.get("Uploads") or []:
                    given_up += _abort(client, uri, upload)
    except (NoAccess, NotSupported) as error:
        log.info("unfinished uploads are not looked for uri=%s error=%s", uri, error)
    return given_up


def _abort(client: Any, uri: StorageUri, upload: dict[str, str]) -> int:
    try:
        with control_errors(uri):
            client.abort_multipart_upload(Bucket=uri.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    except NotThere:  # it ended meanwhile
        return 0
    log.info("an unfinished upload was given up uri=s3://%s/%s", uri.bucket, upload["Key"])
    return 1
