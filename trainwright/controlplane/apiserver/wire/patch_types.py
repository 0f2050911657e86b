"""Media types of patches: RFC 7386, RFC 6902, and the two that Kubernetes defines."""

from __future__ import annotations

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

UNSUPPORTED_MEDIA_TYPE = "415: Unsupported Media Type"
"""The message for an unsupported patch type."""
