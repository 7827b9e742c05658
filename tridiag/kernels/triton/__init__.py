"""Systems and recurrences on GPUs, in Triton."""
