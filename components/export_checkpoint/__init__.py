"""The component `export_checkpoint`."""

from trainwright.components.export_checkpoint.component import export_checkpoint

__all__ = ["export_checkpoint"]
