"""An XLA FFI handler that launches kernels on a GPU: no Python, no GIL; on XLA's stream, in XLA's buffers.

It allocates nothing and waits for nothing on the device, and what it launches depends on its attribute alone: so XLA
may record it in a command buffer. It is code for the host: the driver is told to launch by `cuLaunchKernel`, whose
address, as those of the kernels, is in a record of the process (`tridiag.kernels.jobs.words.cuda.Driver`).
"""

from __future__ import annotations

from llvmlite import ir
from numba import cfunc, types
from numba.extending import intrinsic

from tridiag.kernels.jobs.words.cuda import (
    CLEAR,
    MOST_ARRAYS,
    MOST_DEVICES,
    MOST_JOB,
    MOST_KERNELS,
    SIGN,
    Driver,
    Program,
    Step,
)
from tridiag.kernels.jobs.words.symbols import INNER
from tridiag.kernels.runtime.call_frame import (
    API,
    ARGUMENTS,
    COUNT,
    FAILED_PRECONDITION,
    INSTANTIATE,
    INTERNAL,
    INVALID_ARGUMENT,
    MAJOR,
    RECORDABLE,
    RESULTS,
    STAGE,
    VALUES,
    attribute,
    buffer,
    error,
    four_words,
    has_one_array,
    on_stack,
    only_metadata,
    stream,
    text,
)
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import I64, c_function, call, half_word, set_word, word
from tridiag.kernels.simd.records import at

not_ours = text("tridiag: this call of kernels for GPUs was made by another version; make the program anew")
no_driver = text("tridiag: there is no CUDA driver (libcuda.so.1) in this process")
not_loaded = text("tridiag: a kernel is not loaded on this device; call the function once where JAX has the device")
job_on_stack, arrays_on_stack = on_stack(MOST_JOB), on_stack(MOST_ARRAYS)
driver_at, program_at, step_at = at(Driver), at(Program), at(Step)
PROGRAM, STEP = Program.size(), Step.size()


@intrinsic
def driver_of_process(typing):
    """The address of what is linked as INNER."""

    def generate(context, builder, signature, args):
        found = builder.module.globals.get(INNER)
        if found is None:
            found = ir.GlobalVariable(builder.module, I64, INNER)
        return builder.ptrtoint(found, I64)

    return types.int64(), generate


@compiled
def failed(result):
    """Whether a function of the driver says so: its result has 32 bits."""
    return result & 0xFFFFFFFF != 0


@compiled
def refusal(frame, driver, result):
    """The name that the driver has for what it says."""
    name = four_words()
    set_word(name, 0)
    call(driver.error_name, (result & 0xFFFFFFFF, name))
    return error(frame, INTERNAL, word(name))


@compiled
def is_ours(frame):
    """Whether the attribute is one that `tridiag.cuda.custom_call` writes, for as many buffers as there are."""
    if not has_one_array(frame) or word(attribute(frame) + COUNT) < PROGRAM // 8:
        return False
    program = program_at(word(attribute(frame) + VALUES))
    return (
        program.sign == SIGN
        and program.operands == word(frame + ARGUMENTS)
        and program.results == word(frame + RESULTS)
    )


@compiled
def placed(step, program, arrays, job):
    """Write the job of a step, its addresses counted from where arrays are."""
    numbers, source = step + STEP, step + STEP + 8 * program.pointers
    for k in range(program.pointers):
        set_word(job + 8 * k, word(arrays + 8 * word(numbers + 8 * k)) + word(source + 8 * k))
    for k in range(program.pointers, program.job):
        set_word(job + 8 * k, word(source + 8 * k))


@compiled
def located(frame, program, places, arrays):
    """Write where the arrays are; that of number 0 is nowhere, and so is one that is not there."""
    for k in range(MOST_ARRAYS):
        set_word(arrays + 8 * k, 0)
    for k in range(program.operands):
        set_word(arrays + 8 * word(places + 8 * k), buffer(frame, ARGUMENTS, k))
    for k in range(program.results):
        set_word(arrays + 8 * word(places + 8 * (program.operands + k)), buffer(frame, RESULTS, k))


@compiled
def run(driver, step, functions, queue, job):
    """Give a step to the driver, whose answer is returned; -1: the kernel is not loaded."""
    told = step_at(step)
    if told.kernel == CLEAR:
        return call(driver.clear, (word(job), 0, told.cleared, queue))
    function = word(functions + 8 * told.kernel)
    if function == 0:
        return -1
    parameters = four_words()
    set_word(parameters, job)
    return call(driver.launch, (function, told.grid, 1, 1, told.block, 1, 1, told.shared, queue, parameters, 0))


@compiled
def replay(frame, driver):
    """Give all steps of a program to the driver; the XLA_FFI_Error, or 0."""
    block = four_words()
    failure = stream(frame, block)
    if failure != 0:
        return failure
    queue = word(block + 24)
    set_word(block, 0)
    result = call(driver.device, (block,))
    if failed(result):
        return refusal(frame, driver, result)
    device = types.int64(half_word(block))
    if device >= MOST_DEVICES:
        return error(frame, FAILED_PRECONDITION, not_loaded())
    functions = driver.addresses.functions + 8 * MOST_KERNELS * device
    start = word(attribute(frame) + VALUES)
    program, places = program_at(start), start + PROGRAM
    step = places + 8 * (program.operands + program.results)
    arrays, job = arrays_on_stack(), job_on_stack()
    located(frame, program, places, arrays)
    for _ in range(program.steps):
        placed(step, program, arrays, job)
        result = run(driver, step, functions, queue, job)
        if result == -1:
            return error(frame, FAILED_PRECONDITION, not_loaded())
        if failed(result):
            return refusal(frame, driver, result)
        step += STEP + 8 * (program.pointers + program.job)
    return 0


def build():
    """The handler, around the record of the process: of a program that is made, whose kernels it has loaded where they
    are not, and of a call that is run."""

    @compiled
    def handle(frame, zero):
        driver, api = driver_at(driver_of_process()), word(frame + API)
        if only_metadata(frame, RECORDABLE):
            driver.interface = half_word(api + MAJOR) if api != 0 else types.int32(0)
            return 0
        if half_word(frame + STAGE) == INSTANTIATE:
            told = attribute(frame) if has_one_array(frame) else 0
            if told != 0 and driver.load != 0:
                call(driver.load, (word(told + VALUES), word(told + COUNT)))
            return 0
        if not is_ours(frame):
            return error(frame, INVALID_ARGUMENT, not_ours())
        if driver.launch == 0:
            return error(frame, FAILED_PRECONDITION, no_driver())
        return replay(frame, driver)

    whole = c_function(handle, "tridiag_cuda_handler", result=types.int64)

    def handler(frame):
        return call(whole(0), (frame,))  # as in `threads.runner`

    return cfunc(types.int64(types.int64), error_model="numpy")(handler)
