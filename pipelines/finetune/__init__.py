"""The pipeline `finetune`."""

from trainwright.pipelines.finetune.pipeline import finetune

__all__ = ["finetune"]
