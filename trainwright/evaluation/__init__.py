"""Is the model better than before? The program that measures it inside a job, and the call that runs that job."""
