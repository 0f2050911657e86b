"""The revision log: objects in memory with a journal on disk, their history, lists, pages and selections."""
