"""Keeping a part of each object: the same list and the same changes, smaller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factories import pod

from trainwright.api.kinds import POD
from trainwright.cluster.protocol import Listing, WatchEvent
from trainwright.cluster.transforming_lister import TransformingLister


class Whole:
    asked: tuple[Any, ...] = ()

    def list(self, *arguments: Any, **more: Any) -> Listing:
        self.asked = (*arguments, more)
        return Listing([pod("a"), pod("b")], "7")

    def watch(self, *_: Any, **__: Any) -> Iterator[WatchEvent]:
        yield WatchEvent("MODIFIED", pod("a"))
        yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "8"}, "kept": True})


class Paged(Whole):
    def pages(self, *arguments: Any, **more: Any) -> Iterator[Listing]:
        self.asked = (*arguments, more)
        yield Listing([pod("a")], "7")
        yield Listing([pod("b")], "")


@pytest.mark.parametrize("source", [Whole(), Paged()])
def test_lists_and_changes_are_kept_in_part(source: Any) -> None:
    keeping = TransformingLister(source, lambda obj: {"metadata": obj["metadata"]})
    listing = keeping.list(POD, "default", label_selector="x=y")
    assert source.asked == (POD, "default", {"label_selector": "x=y"})
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert (listing.resource_version, "spec" in listing.items[0]) == ("7", False)
    changed, bookmark = keeping.watch(POD, "default", resource_version="7")
    assert "spec" not in changed.object
    assert (bookmark.type, bookmark.resource_version, bookmark.object["kept"]) == ("BOOKMARK", "8", True)
