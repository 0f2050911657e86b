"""The form of the page: starts a fine-tuning, or writes it as YAML, as a run of the pipeline, or as a DAG."""
