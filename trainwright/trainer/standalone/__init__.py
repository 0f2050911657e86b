"""The TrainJob controller as a standalone program for an existing cluster: `trainwright controller`."""
