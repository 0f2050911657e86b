"""What tasks report to Airflow and its surroundings: links, statistics, lineage, asset events."""
