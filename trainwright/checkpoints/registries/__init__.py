"""Registers a published export in the Hugging Face Hub, the Kubeflow Model Registry, or MLflow."""
