"""The pipeline `finetune`."""

from trainwright.pipelines.finetune_pipeline.pipeline import finetune

__all__ = ["finetune"]
