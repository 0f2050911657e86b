"""TrainJobs on the page: the live list, and everything about one of them."""
