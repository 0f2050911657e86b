"""The steps of a run other than training, each as one function that KFP components and Airflow operators share."""
