"""Trainwright: fine-tuning on Kubeflow Trainer v2, from Kubeflow Pipelines and from Airflow.

Importing this package costs nothing: every part is a subpackage of its own, imported where it is used.
"""

__version__ = "0.1.0"
