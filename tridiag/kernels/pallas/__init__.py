"""Systems on GPUs, in Pallas."""
