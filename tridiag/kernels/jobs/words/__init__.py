"""The words of the jobs, by number: constants that compiled code reads, and so nothing else."""
