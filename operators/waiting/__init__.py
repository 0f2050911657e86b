"""Tasks that wait for a TrainJob, an object for each entry of Airflow. Imported when a task runs, never when its DAG is parsed."""
