"""Tracers of PyTorch that record operations while they run."""

from __future__ import annotations


def recorded() -> bool:
    """Whether operations are recorded while they run, by `make_fx` or `torch.jit.trace`: a kernel is none of them."""
    import torch

    core = torch._C
    early = core._dispatch_tls_is_dispatch_key_included(core.DispatchKey.PreDispatch)  # with pre_dispatch=True
    if not early and not core._len_torch_dispatch_stack():
        return core._get_tracing_state() is not None
    proxies = core._TorchDispatchModeKey.PROXY
    found = torch._ops._get_dispatch_mode_pre_dispatch(proxies) if early else core._get_dispatch_mode(proxies)
    return found is not None
