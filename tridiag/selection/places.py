"""Arrays of which libraries there can be here, and on which devices."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.backends import installed, no_gpu


class Place(NamedTuple):
    """Arrays of a library on a kind of device."""

    library: str
    device: str

    def missing(self) -> bool:
        """Whether there are none here; a library that is not installed is not imported."""
        if self.library != "numpy" and not installed(self.library):
            return True
        if self.library == "jax":
            import jax

            return jax.default_backend() != {"cuda": "gpu"}.get(self.device, self.device)
        if self.device == "cpu":
            return False
        if self.library == "torch":
            import torch

            return not torch.cuda.is_available()
        return no_gpu() is not None

    def array(self, x: Any) -> Any:
        if self.library == "numpy":
            return x
        if self.library == "torch":
            import torch

            return torch.as_tensor(x, device=self.device)
        if self.library == "cupy":
            import cupy

            return cupy.asarray(x)
        import jax.numpy as jnp

        return jnp.asarray(x)


PLACES = tuple(Place(library, "cpu") for library in ("numpy", "torch", "jax")) + tuple(
    Place(library, "cuda") for library in ("cupy", "torch", "jax")
)
