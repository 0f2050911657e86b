"""Lists the objects below a prefix with boto3, which returns all keys unchanged; obstore omits folders and unusual names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainwright.storage.objects.errors import boto3_errors
from trainwright.storage.objects.object_store import ListedObject
from trainwright.storage.uri import StorageUri


def list_objects(client: Any, uri: StorageUri, retry: Callable[[Callable[[], Any]], Any]) -> list[ListedObject]:
    """Return all objects below the URI, sorted by name, without folder placeholders. `retry` sends the request of a page.

    Raises StorageError.
    """
    prefix = f"{uri.key}/" if uri.key else ""
    found: list[ListedObject] = []
    position: dict[str, str] = {}

    def page() -> Any:
        with boto3_errors(uri):
            return client.list_objects_v2(Bucket=uri.bucket, Prefix=prefix, **position)

    while True:
        listed = retry(page)
        for entry in listed.get("Contents", []):
            name = entry["Key"].removeprefix(prefix)
            if name and not name.endswith("/"):
                found.append(ListedObject(name, entry["Size"], entry["ETag"]))
        if not listed.get("IsTruncated"):
            return sorted(found, key=lambda each: each.name)
        position = {"ContinuationToken": listed["NextContinuationToken"]}
