"""The component `export_checkpoint`."""

from trainwright.components.export_checkpoint_component.component import export_checkpoint

__all__ = ["export_checkpoint"]
