"""Built-in admission: webhook rules, pod priority and the policies of TrainJobs."""
