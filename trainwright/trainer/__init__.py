"""What Kubeflow Trainer does in a cluster: the controller of TrainJobs and their admission, embedded or as a separate program."""
