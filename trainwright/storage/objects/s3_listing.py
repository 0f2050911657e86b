"""Lists the objects below a prefix with boto3, which returns all keys unchanged; obstore omits folders and unusual names."""

from __future__ import annotations

from trainwright.storage.objects.errors import boto3_errors
from trainwright.storage.objects.object_store import ListedObject
from trainwright.storage.objects.s3_settings import S3Settings
from trainwright.storage.uri import StorageUri


def list_objects(uri: StorageUri, settings: S3Settings | None = None) -> list[ListedObject]:
    """Return all objects below the URI, sorted by name, without folder placeholders. Raises StorageError."""
    client = (settings or S3Settings.from_environment()).boto3_client()
    prefix = f"{uri.key}/" if uri.key else ""
    found = []
    with boto3_errors(uri):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=uri.bucket, Prefix=prefix):
            for entry in page.get("Contents", []):
                name = entry["Key"].removeprefix(prefix)
                if name and not name.endswith("/"):
                    found.append(ListedObject(name, entry["Size"], entry["ETag"]))
    return sorted(found, key=lambda each: each.name)
