"""Server-side apply: field managers, the fields they own, conflicts and merging."""
