"""What a case is drawn from: one number, with a stream of choices for each aspect, so that one may be dropped."""

from __future__ import annotations

import contextlib
import math
import random
from typing import Any

import numpy as np

from guarded import scratch, thresholds
from guarded.memory import Held, Layout, Rooms, plain

SIMPLER = (
    "threads", "thresholds", "batch/4", "batch/2", "n/4", "n/2", "axes", "n-1", "batch-1", "layout", "broadcast",
    "mask", "out", "planted", "singular", "options", "mixed", "numbers", "backend", "library", "begin",
)  # fmt: skip
HALVES = ("float16", "bfloat16")
DTYPES = ("float64",) * 5 + ("float32",) * 5 + ("complex128", "complex64", "complex64", "complex128")
ROOMS = Rooms()
WIDE_HALVES: tuple[str, ...] = ()
with contextlib.suppress(ImportError):
    import ml_dtypes  # noqa: F401  NumPy then knows bfloat16, in which the memory of torch's tensors is looked at

    WIDE_HALVES = "bfloat16", "bfloat16"


class Draw:
    """The choices of one case, its arrays, and what is looked at when it has run."""

    def __init__(self, seed: int, drop: frozenset[str] = frozenset()) -> None:
        self.seed, self.drop = seed, drop
        self.words: list[str] = []
        self.locked: list[Held] = []
        self.written: list[tuple[str, Held]] = []
        self.values = np.random.default_rng(seed)
        self.large = False  # whether it is above all thresholds as they are
        self.behind = self.stream("begin").random() < 0.6 or "begin" in drop

    def stream(self, aspect: str) -> random.Random:
        return random.Random(f"{self.seed} {aspect}")

    def chance(self, aspect: str, share: float, drop: str | None = None) -> bool:
        """Whether so; never where the aspect, or what it is a part of, is dropped."""
        return (drop or aspect) not in self.drop and self.stream(aspect).random() < share

    def choose(self, aspect: str, among: Any, drop: str | None = None) -> Any:
        """One of those; the first where the aspect is dropped."""
        return among[0] if (drop or aspect) in self.drop else self.stream(aspect).choice(among)

    def half(self, library: str, dtype: str) -> str:
        """At times half a precision instead; NumPy's arrays may be float16 only."""
        if not self.chance("half", 0.04, "numbers"):
            return dtype
        return self.choose("which half", ("float16", *WIDE_HALVES)) if library == "torch" else "float16"

    def say(self, **facts: Any) -> None:
        self.words += [f"{name}={value}" for name, value in facts.items()]

    # ---------------------------------------------------------------------------------------------------- sizes

    def machine(self) -> None:
        """The threads and thresholds of this case, and where its scratch memory lies."""
        threads, low = thresholds.draw(self.stream("machine"))
        low = {} if "thresholds" in self.drop else low
        threads = 1 if "threads" in self.drop else threads
        thresholds.set_to(threads, low)
        scratch.begin(at_begin=self.stream("scratch").random() < 0.3)
        self.say(threads=threads, **low)

    def sizes(self, most: int = 3000, longest: int = 2000) -> tuple[int, tuple[int, ...]]:
        """The length of systems, and the batch axes: mostly some hundred numbers, at times above all thresholds."""
        rng = self.stream("sizes")
        size = min(most, int(2 ** rng.uniform(0, 12)))
        if most >= 3000 and rng.random() < 0.012:
            size = int(rng.choice((30_000, 110_000, 110_000, 300_000)))
            longest = size
        elif most >= 3000 and rng.random() < 0.0012:
            return self.large_sizes(rng)
        n = rng.choice(thresholds.widths()) if rng.random() < 0.6 else int(2 ** rng.uniform(0, math.log2(longest)))
        n = max(1, min(n, longest, size if rng.random() < 0.9 else 2 * size))
        if longest == size and rng.random() < 0.4:
            n = max(1, size // rng.choice((1, 2, 3, 9, 17)))
        count = max(1, size // n)
        if count > 2 and rng.random() < 0.5:
            count = max([w for w in thresholds.widths() if w <= count])
        rank = 1 if "axes" in self.drop else rng.choice((0, 1, 1, 2, 2, 2, 3))
        n, count = self.shrunk("n", n), self.shrunk("batch", count)
        batch: list[int] = []
        for k in range(rank):
            left = rank - k - 1
            part = count if not left else min(count, rng.choice((1, 2, 3, 5, 8, 17, count, max(1, math.isqrt(count)))))
            batch.append(part)
            count = max(1, count // part)
        rng.shuffle(batch)
        return n, tuple(batch)

    def large_sizes(self, rng: random.Random) -> tuple[int, tuple[int, ...]]:
        """Results of 9 MB and more, with two batch axes that do not merge in most layouts."""
        self.large = True
        n, inner = rng.choice((2, 9, 15, 33, 130)), rng.choice((2, 3, 15))
        count = rng.choice((1_200_000, 2_400_000)) // (n * inner)
        batch = [self.shrunk("batch", count), inner]
        rng.shuffle(batch)
        return self.shrunk("n", n), tuple(batch)

    def shrunk(self, name: str, length: int) -> int:
        for part in (4, 2):
            length = max(1, length // part) if f"{name}/{part}" in self.drop else length
        return max(1, length - (f"{name}-1" in self.drop))

    def axis(self, rank: int) -> int:
        """Which of so many axes systems lie along: the last half of the time."""
        rng = self.stream("axis")
        return rank - 1 if "axes" in self.drop or rng.random() < 0.4 else rng.randrange(rank)

    # ---------------------------------------------------------------------------------------------------- arrays

    def layout(self, aspect: str, shape: tuple[int, ...], library: str, constant: tuple[int, ...] = ()) -> Layout:
        """Some way to lie; ``constant``: axes along which the values are the same, and may take no room."""
        rng, rank = self.stream(f"layout {aspect}"), len(shape)
        if "layout" in self.drop or rng.random() < 0.25 or self.stream("all plain").random() < 0.3:
            return plain(rank, self.behind)
        order, gaps, signs = list(range(rank)), [0] * rank, [1] * rank
        if rng.random() < 0.35:
            order = order[::-1] if rng.random() < 0.4 else rng.sample(order, rank)
        if self.large or rng.random() < 0.6:
            gaps = [rng.choice((0, 0, 1, 1, 3, 8)) for _ in order]
        numpy = library == "numpy"
        if numpy and rng.random() < 0.2:
            signs = [rng.choice((1, -1)) for _ in order]
        for axis in constant:
            signs[axis] = 0 if rng.random() < 0.7 else 1
        every = rng.choice((2, 3)) if rng.random() < 0.12 else 1
        odd, off = 0, 0
        if numpy and rng.random() < 0.08:
            odd, off = rng.choice(((3, 0), (0, 1), (0, 4), (0, 2), (8, 0)))
        return Layout(tuple(order), tuple(gaps), every, odd, tuple(signs), self.behind, off)

    def operand(self, name: str, x: Any, library: str = "numpy", constant: tuple[int, ...] = ()) -> Any:
        """An argument in guarded memory that cannot be written; Python's scalars are given as they are."""
        if not isinstance(x, np.ndarray):
            return x
        held = ROOMS.copy(x, self.layout(name, x.shape, library, constant))
        held.lock()
        self.locked.append(held)
        self.words.append(f"{name}: {x.dtype.name}{list(x.shape)} strides {list(held.array.strides)}")
        return in_library(held.array, library)

    def output(self, name: str, shape: tuple[int, ...], dtype: Any, library: str = "numpy") -> tuple[Any, Held]:
        """An array to write to, full of NaN, and what tells of it afterwards."""
        held = ROOMS.hold(shape, dtype, self.layout(name, shape, library))
        self.written.append((name, held))
        self.words.append(f"{name}: {held.array.dtype.name}{list(shape)} strides {list(held.array.strides)}")
        return in_library(held.array, library), held

    def finish(self) -> None:
        """Nothing was written beside any output, or any block of scratch memory, and all that was borrowed is back."""
        for name, held in self.written:
            if wrong := held.written_beside():
                raise AssertionError(f"{wrong} bytes beside {name} were written")
        scratch.check()

    def give_back(self) -> None:
        ROOMS.give_back()


def in_library(x: np.ndarray[Any, Any], library: str) -> Any:
    if library == "torch":
        import torch

        if x.dtype.name == "bfloat16":
            return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(x)
    if library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(np.array(x))
    return x


def in_numpy(x: Any) -> np.ndarray[Any, Any]:
    """A copy of a result in NumPy's memory."""
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":
        return np.array(x.float().numpy()).astype("bfloat16")
    return np.array(x.numpy() if hasattr(x, "numpy") else x)
