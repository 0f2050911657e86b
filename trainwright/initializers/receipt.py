"""The receipt under the name that it had before workspaces were shared; it is `trainwright.workspace.receipt` now."""

from __future__ import annotations

from trainwright.workspace.receipt import NAME, Receipt, ReceiptFile, read_receipt, receipted

__all__ = ["NAME", "Receipt", "ReceiptFile", "read_receipt", "receipted"]
