"""A DAG for each group of operators, which docs/airflow/guides.md shows: they run as they are, once their connection is yours."""
