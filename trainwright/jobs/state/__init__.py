"""Which TrainJob belongs to which step of which run, and its state: phase, progress, restarts, pods, events, usage."""
