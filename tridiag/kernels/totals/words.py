"""What is told of the steps of a sequence: real numbers, by the kind of the recurrence and the parts of a number.

LINEAR, TRANSPOSED: what they make of 0; the product of their coefficients, as a mantissa and the exponent of 2. A
transposed recurrence hands products on, so that of it the former is one.
LAST_LINEAR, LAST_TRANSPOSED: the same of the last steps alone, as many as it takes until products are too small to
count; and how many that are.
LOGARITHMS: log(sum(exp(x))). WEIGHTED: what they make of -inf, and the sum of log_a in two numbers.
"""

LINEAR, TRANSPOSED, LOGARITHMS, WEIGHTED = "linear", "transposed", "logarithms", "weighted"
LAST_LINEAR, LAST_TRANSPOSED = "last_linear", "last_transposed"
FIRST_TRIED = 64  # of the last steps, and then twice as many


def numbers(kind: str, parts: int) -> int:
    return {LOGARITHMS: 1, WEIGHTED: 3}.get(kind, 2 * parts + (2 if kind in (LAST_LINEAR, LAST_TRANSPOSED) else 1))
