"""Kubeflow pipelines of the components. `trainwright.pipelines.NAME` is the pipeline, not the package of that name."""

from trainwright.pipelines.finetune import finetune
from trainwright.pipelines.full_pipeline import full_pipeline
from trainwright.pipelines.retrain import retrain
from trainwright.pipelines.sweep import sweep

__all__ = ["finetune", "full_pipeline", "retrain", "sweep"]
