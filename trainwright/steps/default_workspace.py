"""The claim of fine-tunings for which nobody has named one. Imports nothing: the options of the command name it too."""

from __future__ import annotations

WORKSPACE = "pvc://trainwright-finetune?size=50Gi"
