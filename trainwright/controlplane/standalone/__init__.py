"""The TrainJob controller as a program of its own, on a cluster that somebody else runs: `trainwright controller`."""
