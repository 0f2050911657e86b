"""MPI on one machine: what stands in for sshd and ssh between the pods of an MPI job."""
