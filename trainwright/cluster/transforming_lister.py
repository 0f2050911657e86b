"""Lists and watches with a transform applied to each object as it arrives, to bound memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Unpack

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.options import ListOptions, WatchOptions
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent


class TransformingLister:
    """Implements `ListerWatcher` on `cluster`; every object is passed through `transform`."""

    def __init__(self, cluster: Cluster, transform: Callable[[Obj], Obj]):
        self._cluster, self._transform = cluster, transform

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        """List page by page if the cluster supports it."""
        pages = getattr(self._cluster, "pages", None)
        if pages is None:
            listing = self._cluster.list(kind, namespace, **options)
            return Listing([self._transform(item) for item in listing.items], listing.resource_version)
        items: list[Obj] = []
        version = ""
        for page in pages(kind, namespace, **options):
            items.extend(map(self._transform, page.items))
            page.items.clear()  # it would stay in memory while the next one is read
            version = version or page.resource_version
        return Listing(items, version)

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """Watch; bookmarks are not transformed."""
        for event in self._cluster.watch(kind, namespace, **options):
            yield event if event.type == "BOOKMARK" else WatchEvent(event.type, self._transform(event.object))
