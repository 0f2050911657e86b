"""Steps that train on Kubeflow Pipelines: who a step is, what it submits, its trials and its outputs."""
