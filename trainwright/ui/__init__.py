"""The page: TrainJobs, runs and models in a browser, served by `trainwright ui` and by the embedded cluster."""
