"""Media types of the four kinds of patch (RFC 7386, RFC 6902, and the two of Kubernetes)."""

from __future__ import annotations

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

WRONG_TYPE = "415: Unsupported Media Type"
"""What a server answers for a type that it does not accept."""
