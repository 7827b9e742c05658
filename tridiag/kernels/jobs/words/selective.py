"""The jobs of selective scans: those of recurrences, of ``length`` states a sequence, with operands of their own.

What is not given has no address. Gradients are the last operands, and are added to: those of x and of the sizes of
steps have an entry for each step of a sequence; those of a, B and C are sums over a group of sequences that share an
operand. Behind the table of their job: how far the sums of the next group are, in bytes; 0 where each sequence has its
own.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words import recurrences as C

Y, X, A, B, READ, STEP, INIT, LAST = range(8)  # Y: the cotangent of the result, and LAST that of the last states
OPERANDS = 8
OF_X, OF_STEP, OF_A, OF_B, OF_READ, OF_INIT = range(8, 14)
ADJOINT_OPERANDS = 14
SUMMED = OF_A, OF_B, OF_READ
STARTED = C.STARTED
STATES, SIDE_BY_SIDE, APART = range(3)  # kinds: the states of a sequence in lanes, or sequences, which lie side by side
SAME = 256  # times 2**k: operand k is the same for all states
PIECE = 64  # steps that a group of sequences is taken through at a time
