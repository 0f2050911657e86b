"""Commands that compile, run and schedule pipelines of Kubeflow Pipelines."""
