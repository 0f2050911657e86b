"""Built-in admission: webhook rules, feature gates, pod priority and the policies of TrainJobs."""
