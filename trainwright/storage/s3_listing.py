"""What lies below a prefix of a bucket, page by page, with the keys as they are (obstore passes over folders and odd names)."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.storage.s3_errors import control_errors
from trainwright.storage.s3_settings import S3Settings
from trainwright.storage.uri import StorageUri


@dataclass(frozen=True)
class ListedObject:
    """`name` is relative to the URI that was listed."""

    name: str
    size: int
    etag: str


def list_objects(uri: StorageUri, settings: S3Settings | None = None) -> list[ListedObject]:
    """All objects below the URI, sorted by name; without those that only stand for folders. Raises StorageError."""
    client = (settings or S3Settings.from_environment()).control()
    prefix = f"{uri.key}/" if uri.key else ""
    found = []
    with control_errors(uri):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=uri.bucket, Prefix=prefix):
            for entry in page.get("Contents", []):
                name = entry["Key"].removeprefix(prefix)
                if name and not name.endswith("/"):
                    found.append(ListedObject(name, entry["Size"], entry["ETag"]))
    return sorted(found, key=lambda each: each.name)
