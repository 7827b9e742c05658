"""Tiles to and from memory: rows of many systems at any strides, transposed, masked, with pads cut or carried around.

Lanes that lie side by side in memory are read row by row; any others a cache line of one system at a time.
"""

from __future__ import annotations

from numba import carray, njit, types

from tridiag.kernels import job as J
from tridiag.kernels.memory import load, pointer, store, word
from tridiag.kernels.tile import OPTIONS

A_, B_, C_, WHERE_, D_, X_ = range(6)  # the operands, in the order of a job
BLOCK = 8  # rows loaded from one system before the next: one cache line


@njit(**OPTIONS)
def field(job, k):
    return word(job + 8 * k)


@njit(**OPTIONS)
def offset(job, axes, count, index, operand):
    """The byte offset of one system of an operand: its index over the batch axes, last axis fastest."""
    total = 0
    for k in range(count - 1, -1, -1):
        axis = axes + J.AXIS_WORDS * k
        length = field(job, axis)
        total += (index % length) * field(job, axis + 1 + operand)
        index //= length
    return total


@njit(**OPTIONS)
def load_rows(T, address, offsets, lanes, stride, first, last, move, zero):
    """T[i, w] = X[i + move] of lane w, for rows first <= i < last."""
    side = types.int64(T.itemsize)
    together = True
    for w in range(lanes):
        together = together and offsets[w] == offsets[0] + w * side
    if together:
        for i in range(first, last):
            row = carray(pointer(address + offsets[0] + (i + move) * stride, zero), lanes)
            for w in range(lanes):
                T[i, w] = row[w]
        return
    for block in range(first, last, BLOCK):
        for w in range(lanes):
            base = address + offsets[w] + move * stride
            for i in range(block, min(block + BLOCK, last)):
                T[i, w] = load(base + i * stride, zero)


@njit(**OPTIONS)
def store_rows(T, address, offsets, lanes, stride, skip, zero):
    """X of lane w = T[:, w], where the lane is not skipped."""
    n, side = T.shape[0], types.int64(T.itemsize)
    together = True
    for w in range(lanes):
        together = together and offsets[w] == offsets[0] + w * side and not skip[w]
    if together:
        for i in range(n):
            row = carray(pointer(address + offsets[0] + i * stride, zero), lanes)
            for w in range(lanes):
                row[w] = T[i, w]
        return
    for block in range(0, n, BLOCK):
        for w in range(lanes):
            if not skip[w]:
                base = address + offsets[w]
                for i in range(block, min(block + BLOCK, n)):
                    store(base + i * stride, T[i, w])


@njit(**OPTIONS)
def load_matrix(T, mask, job, systems, offsets, lanes, zero):
    """The matrices of the systems into T[0..2]: transposed, masked; a pad comes around the corner or is zero."""
    n, flags = T.shape[1], field(job, J.FLAGS)
    for band in range(3):
        move = 1 - band if flags & J.TRANSPOSE else 0
        operand = 2 - band if flags & J.TRANSPOSE else band
        for w in range(lanes):
            offsets[w] = offset(job, J.AXES, field(job, J.MATRIX_AXES), systems[w], operand)
        address, stride = field(job, J.POINTERS + operand), field(job, J.STRIDES + operand)
        first, last = 1 if band == 0 else 0, n - 1 if band == 2 else n
        load_rows(T[band], address, offsets, lanes, stride, first, last, -move if band == 0 or band == 2 else 0, zero)
        if band != 1:
            pad = 0 if band == 0 else n - 1
            source = n - 1 - pad if flags & J.TRANSPOSE else pad
            for w in range(lanes):
                T[band, pad, w] = load(address + offsets[w] + source * stride, zero) if flags & J.PERIODIC else zero
    load_mask(mask, job, systems, offsets, lanes)
    if flags & J.MASKED:
        cut(T[0], T[1], T[2], mask, lanes, zero)


@njit(**OPTIONS)
def load_mask(mask, job, systems, offsets, lanes):
    if field(job, J.FLAGS) & J.MASKED:
        for w in range(lanes):
            offsets[w] = offset(job, J.AXES, field(job, J.MATRIX_AXES), systems[w], WHERE_)
        address, stride = field(job, J.POINTERS + WHERE_), field(job, J.STRIDES + WHERE_)
        load_rows(mask, address, offsets, lanes, stride, 0, mask.shape[0], 0, types.uint8(0))


@njit(**OPTIONS)
def cut(A, B, C, mask, lanes, zero):
    n = B.shape[0]
    for i in range(n):
        before, after = (i - 1) if i > 0 else n - 1, (i + 1) if i < n - 1 else 0
        for w in range(lanes):
            keep = mask[i, w] != 0
            if not keep:
                B[i, w] = zero + 1
            if not (keep and mask[before, w] != 0):
                A[i, w] = zero
            if not (keep and mask[after, w] != 0):
                C[i, w] = zero


@njit(**OPTIONS)
def load_right_side(Y, job, offsets, lanes, mask, step, zero):
    n = Y.shape[0]
    load_rows(Y, field(job, J.POINTERS + D_), offsets, lanes, field(job, J.STRIDES + D_), 0, n, 0, zero)
    if field(job, J.FLAGS) & J.MASKED:
        for i in range(n):
            for w in range(lanes):
                if mask[i, w * step] == 0:
                    Y[i, w] = zero


@njit(**OPTIONS)
def right_side_lanes(job, systems, lanes, k, step, width, d_offsets, x_offsets):
    """The offsets of d and x for right side k of every lane (or for width right sides of the one shared matrix)."""
    mat, count = J.AXES, field(job, J.MATRIX_AXES)
    right, right_count = J.AXES + J.AXIS_WORDS * count, field(job, J.RIGHT_AXES)
    used = lanes if step else width
    for w in range(used):
        system = systems[w * step]
        index = k if step else k + w
        d_offsets[w] = offset(job, mat, count, system, D_) + offset(job, right, right_count, index, D_)
        x_offsets[w] = offset(job, mat, count, system, X_) + offset(job, right, right_count, index, X_)
    return used
