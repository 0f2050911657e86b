"""What operators for TrainJobs share: the outcome of a wait, a reference to a job, its preview, its changes, errors of exports."""
