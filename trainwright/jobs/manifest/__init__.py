"""The TrainJob manifest of a request: its builders, one for each part, and the runtime patches. Pure."""
