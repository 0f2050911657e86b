"""Which stores the page reads with the rights of its server, and how: URIs come from users, and from objects that others write."""

from __future__ import annotations

from pathlib import Path

from trainwright.api.errors import Forbidden
from trainwright.storage.errors import StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.open import open_store
from trainwright.storage.store import Store
from trainwright.storage.uri import StorageUri
from trainwright.ui.call import Page
from trainwright.ui.models.foreign_json import shown_text

SCHEMES = ("file", "s3", "gs", "az")
MAX_URI = 2_000


class Places:
    """What the settings of a page allow."""

    def __init__(self, page: Page):
        self._page = page
        self._given = [uri for uri in map(_parsed_or_none, page.exports) if uri is not None]
        given = [uri.path for uri in self._given if uri.scheme == "file"]
        self._roots = [*given, *(root for root in page.file_roots if page.may_read_files)]

    def allowed(self, text: str) -> StorageUri:
        """Return the URI of a folder that may be read. Raises BadUri, Forbidden, which says why not."""
        if len(text) > MAX_URI:
            raise Forbidden(f"the URI is longer than {MAX_URI} characters")
        uri = StorageUri.parse(text)
        if uri.scheme not in SCHEMES:
            raise Forbidden(f"{shown_text(uri, 300)}: exports are in stores with the schemes {', '.join(SCHEMES)}")
        if uri.scheme == "file" and self._root_of(uri) is None:
            raise Forbidden(
                f"{shown_text(uri, 300)} is not below a folder that this page may read; start it with the option --exports {uri}"
            )
        if not self._page.may_read_files and not any(_is_below(uri, given) for given in self._given):
            raise Forbidden(f"{shown_text(uri, 300)} is not below the exports that this page was started with")
        return uri

    def check_may_change(self) -> None:
        """Raise Forbidden for a server that does not run with the rights of its user: it reads stores, and changes nothing there."""
        if not self._page.may_read_files:
            raise Forbidden(
                "this page runs in a cluster: promote with `trainwright checkpoints promote`, with your own credentials"
            )

    def open(self, text: str, *, levels: int = 0) -> Store:
        """Return the store of a folder that may be read, as may be the `levels` of folders above it.

        Below a local root, no link out of it is followed. Raises BadUri, Forbidden, StorageError.
        """
        uri = self.allowed(text)
        above = uri
        for _ in range(levels):
            above = _parent(above)
            self.allowed(str(above))
        root = self._root_of(uri) if uri.scheme == "file" else None
        if root is None:
            return open_store(uri)
        if root == Path("/"):  # every file may be read; links still lead nowhere
            root = above.path
        store = FileStore(StorageUri.from_path(root))
        for part in uri.path.relative_to(root).parts:
            store = store.below(part)
        return store

    def _root_of(self, uri: StorageUri) -> Path | None:
        """Return the highest root above a path, so that as few links as possible are followed."""
        roots = [root for root in self._roots if uri.path == root or uri.path.is_relative_to(root)]
        return min(roots, key=lambda root: len(root.parts), default=None)


def _is_below(uri: StorageUri, given: StorageUri) -> bool:
    if uri.scheme != given.scheme:
        return False
    return uri.location == given.location or uri.location.startswith(f"{given.location.rstrip('/')}/")


def _parent(uri: StorageUri) -> StorageUri:
    above, slash, _ = uri.location.rstrip("/").rpartition("/")
    if not slash or not above:
        raise Forbidden(f"{shown_text(uri, 300)} is not in a folder of exports: expected EXPORT_URI/RUN/checkpoint-N")
    return StorageUri(uri.scheme, above)


def _parsed_or_none(text: str) -> StorageUri | None:
    try:
        uri = StorageUri.parse(text)
    except StorageError:
        return None
    return uri if uri.scheme in SCHEMES else None
