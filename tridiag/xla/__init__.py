"""Kernels as custom calls of XLA: in `jax.jit`, without Python while they run."""
