"""A wave in a channel that is cut across: tridiagonal systems whose rows lie in several processes, by mpi4py.

    mpiexec -n 4 python examples/mpi_channel.py [--length 1500] [--width 600] [--output wave.png]

u_xx + u_yy + k^2 u = f, zero at both ends in x, periodic in y: a Fourier transform in y leaves a tridiagonal system
along x for each mode. Each process has some of the rows of all, and six numbers a system are all that is exchanged.
Systems that cannot be solved accurately by parts are NaN: the modes that propagate, whose diagonals do not dominate,
and some that decay by many orders of magnitude within a process. They are gathered alone.
Exit status 1 if a residual is more than 8 eps, or the wave is not that of one process.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import tridiag
from tridiag import parts

LOSS = 0.02  # of k^2
BAR = 8 * np.finfo(float).eps


def solve(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, comm: MPI.Comm) -> tuple[np.ndarray, int]:
    """x in the rows of this process, rows along the last axis, and how many systems were gathered."""
    told = np.ascontiguousarray(parts.reduce(a, b, c, d))
    of_all = np.empty((comm.size, *told.shape), told.dtype)
    comm.Allgather(told, of_all)
    x = parts.finish(a, b, c, d, parts.join(of_all)[comm.rank])
    lost = np.isnan(x).any(-1)  # no certificate in the rows of some process: to be solved whole
    comm.Allreduce(MPI.IN_PLACE, lost, MPI.LOR)
    if lost.any():
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape, d.shape)
        bands = [np.broadcast_to(entries, shape)[lost].T for entries in (a, b, c, d)]
        whole = [gathered(rows, comm) for rows in bands]
        first = comm.exscan(shape[-1]) or 0
        x[lost] = tridiag.solve(*whole, axis=0)[first : first + shape[-1]].T
    return x, int(lost.sum())


def gathered(rows: np.ndarray, comm: MPI.Comm) -> np.ndarray:
    """The rows of all processes, one below another."""
    counts = comm.allgather(rows.size)
    whole = np.empty((sum(counts) // rows.shape[1], rows.shape[1]), rows.dtype)
    comm.Allgatherv(np.ascontiguousarray(rows), (whole, counts))
    return whole


def channel(length: int, width: int, wavenumber: float, mine: slice) -> tuple[np.ndarray, ...]:
    """Some rows of the systems of all modes, (modes, rows), in a channel of length 1 with cells that are square."""
    h = 1 / (length + 1)
    modes = 2 * np.pi * np.fft.fftfreq(width, h)[:, None]
    x, y = (np.arange(length) + 1)[None, mine] * h, np.arange(width)[:, None] * h
    source = np.exp(-(((x - 0.3) / 0.01) ** 2) - ((y - 0.4 * width * h) / 0.01) ** 2)
    one = np.ones(1)
    # the eigenvalues of the second difference in y, and a wave that loses a little
    b = -2 - 4 * np.sin(modes * h / 2) ** 2 + (wavenumber * h) ** 2 * (1 + LOSS * 1j)
    return one, b, one, h**2 * np.fft.fft(source, axis=0)


def residual(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, x: np.ndarray) -> float:
    """The largest componentwise one."""
    before, behind = np.zeros_like(x), np.zeros_like(x)
    before[:, 1:], behind[:, :-1] = x[:, :-1], x[:, 1:]
    terms = a * before, b * x, c * behind, -d
    size = np.maximum(sum(map(abs, terms)), np.finfo(float).tiny / BAR)
    return float((abs(sum(terms)) / size).max())


def plot(wave: np.ndarray, cuts: list[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    most, (width, length) = 0.3 * abs(wave).max(), wave.shape
    figure, axes = plt.subplots(figsize=(9, 9 * width / length + 0.8), layout="constrained")
    extent = 0, 1, 0, width / length
    axes.imshow(wave.real, cmap="RdBu", vmin=-most, vmax=most, origin="lower", extent=extent)
    for cut in cuts[1:-1]:
        axes.axvline(cut / length, color="black", lw=0.8, ls=":")
    axes.set(xlabel="x", ylabel="y", title=f"A wave in a channel, the rows of its systems in {len(cuts) - 1} processes")
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=1500)
    parser.add_argument("--width", type=int, default=600)
    parser.add_argument("--wavenumber", type=float, default=200.0)
    parser.add_argument("--output", type=Path, help="where to draw the wave")
    options = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    cuts = [options.length * k // comm.size for k in range(comm.size + 1)]
    size = options.length, options.width, options.wavenumber
    x, count = solve(*channel(*size, slice(cuts[comm.rank], cuts[comm.rank + 1])), comm)
    whole, status = gathered(x.T, comm).T, 0
    if comm.rank == 0:
        system = channel(*size, slice(None))
        error, alone = residual(*system, whole), tridiag.solve(*system)
        off = float(abs(whole - alone).max() / abs(alone).max())
        print(f"{len(x)} systems of {options.length} rows in {comm.size} processes: {len(x) - count} solved by parts,")
        print(f"{count} gathered; largest residual {error / BAR * 8:.1f} eps, {off:.1e} from the wave of one process")
        if options.output:
            plot(np.fft.ifft(whole, axis=0), cuts, options.output)
        status = int(error > BAR or off > 1e-9)
    return int(comm.bcast(status))


if __name__ == "__main__":
    sys.exit(main())
