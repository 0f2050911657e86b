"""Kubeflow pipelines that chain the components; a pipeline's folder installs as NAME_pipeline."""

from trainwright.pipelines.finetune_pipeline import finetune

__all__ = ["finetune"]
