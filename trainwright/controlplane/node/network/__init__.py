"""Names and addresses of pods and Services: what a cluster's network and DNS would give to a container."""
