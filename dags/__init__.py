"""Airflow DAGs of the operators, installed as `trainwright.example_dags`."""
