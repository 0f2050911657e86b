"""Which stores the page reads: schemes, roots of local files, links, and the limits of a page in a cluster."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import Forbidden
from trainwright.storage.errors import BadUri, StorageError
from trainwright.ui.call import Page
from trainwright.ui.models.places import Places

ROOT = "/srv/exports"
PAGE = Page(exports=(f"file://{ROOT}", "s3://given/exports"), may_read_files=True)


@pytest.mark.parametrize(
    "uri", [f"file://{ROOT}", f"file://{ROOT}/run/checkpoint-1", "s3://other/x", "gs://bucket", "az://container/x"]
)
def test_stores_and_folders_below_a_root_are_allowed(uri: str) -> None:
    assert str(Places(PAGE).allowed(uri)) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc",
        "file:///srv/exports2/run",
        "file:///srv",
        "https://example.com/x",
        "hf://org/name",
        "pvc://claim/x",
        "s3://bucket/" + "x" * 3000,
    ],
)
def test_other_places_are_forbidden(uri: str) -> None:
    with pytest.raises(Forbidden):
        Places(PAGE).allowed(uri)


@pytest.mark.parametrize("uri", [f"file://{ROOT}/../etc", f"file://{ROOT}/%2e%2e/etc", "nonsense", "s3://bucket/../c", ""])
def test_malformed_uris_are_rejected(uri: str) -> None:
    with pytest.raises(BadUri):
        Places(PAGE).allowed(uri)


@pytest.mark.medium
@given(st.text(max_size=40))
def test_no_path_leads_out_of_the_root(path: str) -> None:
    try:
        uri = Places(PAGE).allowed(f"file://{ROOT}/{quote(path, safe='/.%')}")
    except (Forbidden, StorageError):
        return
    assert uri.path == Path(ROOT) or uri.path.is_relative_to(ROOT)


def test_a_page_in_a_cluster_reads_only_the_given_exports() -> None:
    places = Places(Page(exports=("s3://given/exports",), file_roots=(Path("/srv"),)))
    assert str(places.allowed("s3://given/exports/run")) == "s3://given/exports/run"
    for uri in ("s3://given", "s3://given/exports2", "s3://other", "file:///srv/x"):
        with pytest.raises(Forbidden):
            places.allowed(uri)
    with pytest.raises(Forbidden, match="runs in a cluster"):
        places.check_may_change()


def test_folders_above_must_be_allowed_too() -> None:
    places = Places(PAGE)
    places.open(f"file://{ROOT}/run/checkpoint-1", levels=2)
    with pytest.raises(Forbidden):
        places.open(f"file://{ROOT}/checkpoint-1", levels=2)


@pytest.mark.parametrize("is_all_allowed", [False, True])
def test_a_link_out_of_the_root_is_not_followed(tmp_path: Path, is_all_allowed: bool) -> None:
    secret, exports = tmp_path / "secret", tmp_path / "exports"
    (secret / "checkpoint-1").mkdir(parents=True)
    (secret / "checkpoint-1" / "manifest.json").write_text("{}")
    exports.mkdir()
    (exports / "run").symlink_to(secret)
    page = Page(exports=(f"file://{exports}",), may_read_files=True)
    if is_all_allowed:
        page = Page(file_roots=(Path("/"),), may_read_files=True)
    store = Places(page).open(f"file://{exports}/run/checkpoint-1", levels=2)
    with pytest.raises(StorageError, match="link"):
        store.read("manifest.json")
    with pytest.raises(StorageError, match="link"):
        store.list_folder(10)
