"""Kernels for GPUs on arrays of JAX and PyTorch: where they are compiled, on which device and stream, in which memory.

That they solve, and differentiate, map and scan, the main suite sees on pretended devices (`pretence`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import STANDIN, assert_solves, dominant, installed, oracle, to_library, uniform

import tridiag
from tridiag.backends import BACKENDS

if not STANDIN:
    pytest.skip("CuPy and a device are here: nothing needs to be pretended", allow_module_level=True)
import cpu_build
import cupy
from cupy import machine
from pretence import pretend

from tridiag.cuda.record import Launch
from tridiag.kernels.jobs.words.cuda import MOST_DEVICES, Driver

if installed("jax"):
    from tridiag.cuda import custom_call

pytestmark = pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not()))
BRIDGED = [name for name, entry in BACKENDS.items() if "cupy" in entry.needs and "solve" in entry.verbs]
needs_jax = pytest.mark.skipif(not installed("jax"), reason="needs jax, which is not installed")
needs_torch = pytest.mark.skipif(not installed("torch"), reason="needs torch, which is not installed")
CALLBACK = "xla_buffer_python_gpu_callback"


@pytest.fixture
def system() -> list[Any]:
    return [to_library("jax", x) for x in dominant((6, 40))]


def lowered(function: Any, system: list[Any], platform: str) -> str:
    import jax

    text: str = jax.jit(function).trace(*system).lower(lowering_platforms=(platform,)).as_text()
    return text


@needs_jax
def test_auto_in_a_trace_is_the_choice_of_the_platform_for_which_it_is_compiled(system: list[Any]) -> None:
    programs = {platform: lowered(tridiag.solve, system, platform) for platform in ("cpu", "cuda", "rocm", "tpu")}
    assert "tridiag_thomas_rows" in programs["cpu"] and "callback" not in programs["cpu"]
    assert custom_call.name() in programs["cuda"] and "tridiag_thomas" not in programs["cuda"]
    assert CALLBACK not in programs["cuda"]
    for platform in ("rocm", "tpu"):
        assert "custom_call" not in programs[platform] and "stablehlo.while" in programs[platform]


@needs_jax
def test_gradients_vmap_and_scan_are_the_choice_of_the_platform_too(system: list[Any]) -> None:
    import jax

    def loss(*given: Any) -> Any:
        return (tridiag.solve(*given) ** 2).sum()

    def steps(a: Any, b: Any, c: Any, d: Any) -> Any:
        return jax.lax.scan(lambda x, _: (tridiag.solve(a, b, c, x), None), d, None, length=3)[0]

    gradient = jax.grad(loss, argnums=(0, 1, 2, 3))
    for function, calls in ((gradient, 2), (jax.vmap(tridiag.solve), 1), (jax.vmap(gradient), 2), (steps, 1)):
        program = lowered(function, system, "cuda")
        assert program.count(f"@{custom_call.name()}") == calls and "tridiag_thomas" not in program
        assert "tridiag_thomas" in lowered(function, system, "cpu")


@needs_jax
def test_without_cupy_programs_for_gpus_are_made_of_operations_of_jax(
    system: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tridiag.backends"], "installed", lambda module: module != "cupy")
    tridiag.calls.plan.cached_plan.cache_clear()
    program = lowered(lambda *given: tridiag.solve(*given, pivoting=True), system, "cuda")
    assert "custom_call" not in program and "stablehlo.while" in program
    tridiag.calls.plan.cached_plan.cache_clear()


@needs_jax
@pytest.mark.parametrize("name", BRIDGED)
def test_a_named_backend_is_compiled_where_it_runs(name: str, system: list[Any]) -> None:
    """The default platform of JAX is the CPU here, where such a backend is refused."""
    with pytest.raises(tridiag.BackendError, match="runs on cuda, not on cpu"):
        tridiag.solve(*system, backend=name, pivoting=False)
    with pytest.raises(tridiag.BackendError, match="runs on cuda, not on cpu"):
        lowered(lambda *given: tridiag.solve(*given, backend=name, pivoting=False), system, "cuda")


@needs_jax
@pytest.mark.parametrize("name", ["cupy_pcr", "cupy_thomas"])
@pytest.mark.parametrize("generate", [dominant, uniform])
def test_nothing_but_what_xla_gives_is_used(name: str, generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy has no memory left: what a callback launches may be recorded, and replayed when its memory is another's."""
    import jax

    pretend(monkeypatch, name)
    pool = cupy.get_default_memory_pool()
    for shape in ((4, 40), (2, 9001)) if generate is dominant else ((4, 40),):
        system = generate(shape)
        pool.set_limit(size=1)
        try:
            x = jax.jit(lambda *given: tridiag.solve(*given, backend=name))(*(to_library("jax", v) for v in system))
        finally:
            pool.set_limit(size=0)
        if shape[1] < 100:
            assert_solves(np.asarray(x), *system)


@needs_jax
def test_launches_are_planned_once(monkeypatch: pytest.MonkeyPatch, system: list[Any]) -> None:
    import jax

    from tridiag.cuda import solvers as programs

    pretend(monkeypatch, "cupy_pcr")
    solve = jax.jit(lambda *given: tridiag.solve(*given, backend="cupy_pcr"))
    solve(*system).block_until_ready()
    monkeypatch.setattr(programs, "solution", None)
    monkeypatch.setattr(custom_call, "attribute", None)
    np.testing.assert_allclose(solve(*system), oracle(*map(np.asarray, system)).astype(float), rtol=1e-12)


@needs_jax
def test_a_callback_works_on_the_device_of_its_buffers_and_the_stream_of_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    from tridiag.cuda import on_jax

    buffer = types.SimpleNamespace(__cuda_array_interface__={"data": (4096, False)})
    assert on_jax.address(buffer) == 4096
    monkeypatch.setitem(machine.pointers, 4096, 1)
    with on_jax.here(types.SimpleNamespace(stream=77), on_jax.address(buffer)):
        assert cupy.cuda.get_device_id() == 1 and cupy.cuda.get_current_stream().ptr == 77
    assert cupy.cuda.get_device_id() == 0 and cupy.cuda.get_current_stream().ptr != 77


@needs_jax
def test_kernels_are_compiled_when_jax_traces_for_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded in a CUDA graph cannot be compiled then."""
    import jax

    from tridiag.cuda import launcher
    from tridiag.cuda import solvers as programs
    from tridiag.problems.forms import Form

    shape, strides, kinds = (6, 40), (320, 8), (np.dtype("float64"),) * 2
    extents = (*[shape] * 3, None, *[shape] * 2), (*[strides] * 3, None, *[strides] * 2)
    program = programs.solution("chunks", Form(shape, shape, 1), *extents, kinds, launcher.shared_memory())
    launches = [step for step in program.steps if isinstance(step, Launch)]
    assert len(launches) == 2 and program.scratch
    compiled: list[Any] = []

    def launch_of(step: Any, device: int) -> Any:
        compiled.append((device, cupy.cuda.get_device_id()))
        return types.SimpleNamespace(ptr=4096 + device), (1,), (1,), 0

    monkeypatch.setattr(launcher, "launch_of", launch_of)
    custom_call.load(launches)
    assert not compiled  # JAX has no GPU
    devices = [types.SimpleNamespace(local_hardware_id=k) for k in (0, 1)]
    monkeypatch.setattr(jax, "local_devices", lambda backend: devices if backend == "cuda" else [])
    before = custom_call.process.copy()
    try:
        custom_call.load(launches)
        table = custom_call.process[Driver.fields["functions"].word :].reshape(MOST_DEVICES, -1).copy()
    finally:
        custom_call.process[:] = before
    assert compiled == [(0, 0), (1, 1), (0, 0), (1, 1)]
    for step in launches:
        assert table[:2, custom_call.NUMBERS[step.kernel]].tolist() == [4096, 4097]


@needs_torch
def test_tensors_are_solved_on_their_device_and_the_current_stream_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tridiag.cuda import on_torch

    streams: Any = {"cuda:1": types.SimpleNamespace(cuda_stream=99)}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[str(device)])
    with on_torch.here(types.SimpleNamespace(device=torch.device("cuda:1"))):
        assert cupy.cuda.get_device_id() == 1 and cupy.cuda.get_current_stream().ptr == 99
    assert cupy.cuda.get_device_id() == 0


@needs_torch
@pytest.mark.parametrize("name", ["cupy_pcr", "cupy_thomas"])
def test_scratch_memory_of_tensors_is_that_of_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, name)
    pool, system = cupy.get_default_memory_pool(), uniform((4, 40))
    pool.set_limit(size=1)
    try:
        x = tridiag.solve(*(to_library("torch", v) for v in system), backend=name)
    finally:
        pool.set_limit(size=0)
    assert_solves(x.numpy(), *system)


@needs_jax
def test_recurrences_use_nothing_but_what_xla_gives_and_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a trace for a GPU "auto" takes the kernels, of the gradient too."""
    import jax

    a, x = (to_library("jax", v) for v in dominant((4, 40))[:2])

    def loss(a: Any, x: Any) -> Any:
        return (tridiag.linear_recurrence(a, x) ** 2).sum()

    for function, calls in ((tridiag.linear_recurrence, 1), (jax.grad(loss, argnums=(0, 1)), 2)):
        assert lowered(function, [a, x], "cuda").count(f"@{custom_call.name()}") == calls
        assert custom_call.name() not in lowered(function, [a, x], "cpu")
    pretend(monkeypatch, "cupy_scan")
    pool = cupy.get_default_memory_pool()
    pool.set_limit(size=1)
    try:
        y = jax.jit(lambda *given: tridiag.linear_recurrence(*given, backend="cupy_scan"))(a, x)
    finally:
        pool.set_limit(size=0)
    np.testing.assert_allclose(y, tridiag.linear_recurrence(np.asarray(a), np.asarray(x)), rtol=1e-12)


SHARDED = """
import sys
sys.path[:0] = {paths!r}
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import pytest, tridiag
from helpers import dominant, oracle
from pretence import pretend
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("k",))
given = [jax.device_put(x, NamedSharding(mesh, P("k"))) for x in dominant((8, 12))]
wanted = oracle(*map(np.asarray, given)).astype(float)
with pytest.MonkeyPatch.context() as patch:
    for name in {names!r}:
        pretend(patch, name)
        solve = lambda *x: tridiag.solve(*x, backend=name, pivoting=False)
        mapped = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=P("k"), out_specs=P("k")))
        x = mapped(*given)
        assert x.sharding.spec == P("k") and "all-gather" not in mapped.lower(*given).compile().as_text(), name
        for found in (x, jax.jit(solve)(*given)):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        of_one = jax.grad(lambda *x: mapped(*x).sum(), 1)(*given)
        np.testing.assert_allclose(of_one, jax.grad(lambda *x: tridiag.solve(*x).sum(), 1)(*given), rtol=1e-10)
"""


@needs_jax
def test_in_shard_map_every_device_solves_the_systems_that_it_has(tmp_path: Path) -> None:
    names = [name for name in BRIDGED if not name.startswith("numba")]
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED.format(paths=[str(Path(__file__).parents[1]), *sys.path], names=names))
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@needs_jax
def test_factors_of_matrices_whose_rows_lie_on_two_devices() -> None:
    script = Path(__file__).with_name("split_status.py")
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    environment = os.environ | devices | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert done.stdout.endswith("right\n"), done.stdout + done.stderr
