"""What is told of the steps of a sequence: real numbers, by the kind of the recurrence and the parts of a number.

LINEAR, TRANSPOSED: what they make of 0; the product of their coefficients, as a mantissa and the exponent of 2. A
transposed recurrence hands products on, so that of it the former is one.
LOGARITHMS: log(sum(exp(x))). WEIGHTED: what they make of -inf, and the sum of log_a in two numbers.
"""

LINEAR, TRANSPOSED, LOGARITHMS, WEIGHTED = "linear", "transposed", "logarithms", "weighted"


def numbers(kind: str, parts: int) -> int:
    return {LOGARITHMS: 1, WEIGHTED: 3}.get(kind, 2 * parts + 1)
