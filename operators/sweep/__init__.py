"""The operators of a sweep: plan its trials, train them, stop hopeless ones, pick the best."""
