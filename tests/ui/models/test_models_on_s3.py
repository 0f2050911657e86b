"""Exports in a bucket: listed folder by folder, shown, compared, promoted and rolled back like those in a local folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.written_exports import write_export
from ui_calls import MakeCall

from trainwright.checkpoints.manifest import Manifest
from trainwright.storage.open import open_store
from trainwright.ui import actions
from trainwright.ui.models.endpoints import ModelEndpoints

pytestmark = pytest.mark.medium


@pytest.fixture
def stored(s3_folder: str, tmp_path: Path) -> tuple[str, dict[str, Manifest]]:
    """The URI of a folder of exports in a bucket, and the manifests of its runs."""
    local, root = tmp_path / "local", f"{s3_folder}/exports"
    manifests = {run: write_export(local, run, files={"README.md": b"# Mine"}) for run in ("one", "two")}
    store = open_store(root)
    for path in sorted(local.rglob("*")):
        if path.is_file():
            store.put(path, path.relative_to(local).as_posix())
    return root, manifests


def test_a_bucket_is_shown_and_changed(stored: tuple[str, dict[str, Manifest]], make_call: MakeCall) -> None:
    root, manifests = stored
    one, two = manifests["one"].digest, manifests["two"].digest
    routes = {route.path: route.answer for route in ModelEndpoints().routes}

    def get(path: str, **query: str) -> Any:
        return routes[path](make_call(query=query))

    found = get("/exports", uri=root)
    assert (found["kind"], [run["name"] for run in found["runs"]]) == ("root", ["one", "two"])
    assert [row["digest"] for row in get("/exports", uri=f"{root}/one")["exports"]] == [one]
    assert get("/exports", uri=f"{root}/none")["runs"] == []
    uris = {run: f"{root}/{run}/checkpoint-5" for run in manifests}
    actions.promote(make_call(body={"uri": uris["one"], "digest": one, "expected": ""}))
    actions.promote(make_call(body={"uri": uris["two"], "digest": two, "expected": one}))
    rolled = actions.roll_back(make_call(body={"uri": root, "expected": two, "click": "0123456789"}))
    assert rolled["alias"]["current"]["digest"] == one
    shown = get("/export", uri=uris["one"])
    assert (shown["aliases"], shown["protectedBy"], shown["root"]) == (["champion"], ["champion"], root)
    assert get("/export/card", uri=uris["one"])["readme"] == "# Mine"
    assert get("/export/diff", one=uris["one"], other=uris["two"])["counts"]["unchanged"] == 2
