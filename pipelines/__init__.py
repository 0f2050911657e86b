"""Kubeflow pipelines of the components. The folder of a pipeline is installed as NAME_pipeline."""

from trainwright.pipelines.finetune_pipeline import finetune
from trainwright.pipelines.retrain_pipeline import retrain

__all__ = ["finetune", "retrain"]
