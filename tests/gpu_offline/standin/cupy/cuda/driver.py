"""`cupy.cuda.driver`: how many blocks a multiprocessor holds. One, so that a block has more than one piece of work."""

from cupy import raw

SHARED = 233_472
CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = raw.MOST_DYNAMIC_SHARED


def occupancyMaxActiveBlocksPerMultiprocessor(function: int, block: int, shared: int) -> int:
    assert raw.FUNCTIONS[function].attributes[raw.MOST_DYNAMIC_SHARED] >= shared
    return int(block <= 1024 and shared + 1024 <= SHARED)


def funcGetAttribute(attribute: int, function: int) -> int:
    return raw.FUNCTIONS[function].attributes[attribute]


def funcSetAttribute(function: int, attribute: int, value: int) -> None:
    raw.FUNCTIONS[function].attributes[attribute] = value
