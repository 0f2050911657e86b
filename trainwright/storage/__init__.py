"""Where datasets, models and checkpoints lie: URIs, stores, and transfer that is verified by digest."""

from trainwright.storage.errors import BadUri, NoSpace, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.store import Store, StoredFile, open_store
from trainwright.storage.uri import StorageUri

__all__ = ["BadUri", "FileStore", "NoSpace", "StorageError", "StorageUri", "Store", "StoredFile", "open_store"]
