"""What a program of XLA tells its calls of kernels for GPUs, and what a process knows of the driver and its devices."""

from __future__ import annotations

from tridiag.kernels.jobs.words.record import Record, Word, Words

SIGN = 0x7472_6964_6961_6701  # what the attribute of such a call begins with
MOST_JOB, MOST_ARRAYS = 128, 32  # words that a kernel takes; arrays from which addresses count
MOST_DEVICES, MOST_KERNELS = 64, 512
INTERFACE = 0  # the major version of XLA's interface for handlers
CLEAR = -1  # the kernel of a step that launches none


class Program(Record):
    """The attribute of a call.

    Behind these words: the number of its array for every operand and then for every result, from 1 on; then the steps.
    """

    sign = Word()
    operands, results, steps = Word(), Word(), Word()
    pointers, job = Word(), Word()  # of the words of a job those that are addresses, which come first; and all


class Step(Record):
    """A launch, or zeros in memory: from the first address of the job on.

    Behind these words: the number of the array from which each address counts, 0 for none; the job, with offsets
    in place of addresses.
    """

    kernel = Word()  # in `tridiag.cuda.instances.INSTANCES`
    grid, block, shared = Word(), Word(), Word()
    in_turn = Word()  # as in `tridiag.cuda.record.Launch`
    cleared = Word()  # bytes


class Driver(Record):
    """Addresses of C functions, 0 where there is no driver, and of kernels that are loaded."""

    launch, clear, device, error_name = Word(), Word(), Word(), Word()  # cuLaunchKernel, cuMemsetD8Async, ...
    interface = Word()  # the major version of XLA's, when it has asked for ours
    load = Word()  # load(program, words) loads the kernels of a program on all devices
    functions = Words(MOST_DEVICES * MOST_KERNELS)  # for every device in turn
