"""`cupy.cuda.driver`: how many blocks a multiprocessor holds. One, so that a block has more than one piece of work."""

SHARED = 233_472


def occupancyMaxActiveBlocksPerMultiprocessor(function: int, block: int, shared: int) -> int:
    return int(block <= 1024 and shared + 1024 <= SHARED)
