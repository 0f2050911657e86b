"""The object store: objects in memory with a journal on disk, change history, watches, pagination and selectors."""
