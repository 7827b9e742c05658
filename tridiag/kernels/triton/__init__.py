"""Systems on GPUs, in Triton."""
