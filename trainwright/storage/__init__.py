"""Storage of datasets, models and checkpoints: URIs, stores, and transfers verified by digest."""

from trainwright.storage.errors import BadUri, NoSpace, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.open import open_store
from trainwright.storage.store import Store, StoredFile
from trainwright.storage.uri import StorageUri

__all__ = ["BadUri", "FileStore", "NoSpace", "StorageError", "StorageUri", "Store", "StoredFile", "open_store"]
