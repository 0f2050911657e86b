"""Airflow DAGs that chain the operators; they install as `trainwright.example_dags`."""
