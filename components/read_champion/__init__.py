"""The component read_champion."""

from trainwright.components.read_champion_component.component import read_champion

__all__ = ["read_champion"]
