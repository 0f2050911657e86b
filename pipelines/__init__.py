"""Kubeflow pipelines of the components. The folder of a pipeline is installed as NAME_pipeline."""

from trainwright.pipelines.finetune_pipeline import finetune
from trainwright.pipelines.full_pipeline_pipeline import full_pipeline
from trainwright.pipelines.retrain_pipeline import retrain
from trainwright.pipelines.sweep_pipeline import sweep

__all__ = ["finetune", "full_pipeline", "retrain", "sweep"]
