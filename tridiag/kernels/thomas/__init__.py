"""Many systems: elimination with and without pivoting, refinement, factors, determinants, gradients."""
