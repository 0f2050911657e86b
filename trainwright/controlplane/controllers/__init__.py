"""Level-triggered controllers, written against `Cluster` alone: each runs in the embedded control plane or against any cluster."""
