"""The component read_champion."""

from trainwright.components.read_champion.component import read_champion

__all__ = ["read_champion"]
