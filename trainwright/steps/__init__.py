"""The steps of a run besides training, each as one call: what a KFP component and an Airflow operator both do."""
