"""What CPython calls in the place of a verb, and of the call of a table: see `tridiag.kernels.runtime.verbs`.

Arguments are put into the order of the table, names that Python knows by their addresses (as all that are written in a
program) into their places. What the table has not met, and what Python has to refuse, goes to the verb's own function.
"""

from __future__ import annotations

from numba import cfunc, types

from tridiag.kernels.runtime.call_table import SAME
from tridiag.kernels.runtime.table_entry import (
    ITEMS,
    LENGTH,
    MET_SIZE,
    NOT_TO_BE_HAD,
    TYPE,
    alike,
    drop,
    keep,
    kept_with,
    may_take_the_result,
    met_of,
    recalling,
    run_kept,
    table_at,
)
from tridiag.kernels.runtime.verbs import NOWHERE, Verbs
from tridiag.kernels.runtime.verbs import Signature as SignatureWords
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function, call, set_word, shared_words, word
from tridiag.kernels.simd.records import address_of, at

signature_at, verbs_at = at(SignatureWords), at(Verbs)
BY_POSITION = (1 << 63) - 1  # the bits of PyVectorcall_NARGS

verbs_known = shared_words("tridiag_verbs", 1)  # the address of `Verbs`


@compiled
def signature_of(verb):
    """The address of how calls of a verb are calls of its table; 0: it is no verb."""
    if word(verbs_known()) == 0:
        return 0
    verbs = verbs_at(word(verbs_known()))
    for k in range(verbs.count):
        if signature_at(verbs.signatures[k]).verb == verb:
            return verbs.signatures[k]
    return 0


@compiled
def named(signature, name, positional):
    """The parameter of a name that is not given by position, or NOWHERE."""
    for k in range(positional, signature.parameters):
        if signature.names[k] == name:
            return k
    return NOWHERE


@compiled
def read_arguments(signature, arguments, positional, keywords):
    """The arguments of a call, in the order of the parameters; False: Python is to tell what is wrong with them."""
    if positional > signature.positional:
        return False
    for k in range(positional):
        signature.given[k] = word(arguments + 8 * k)
    for k in range(positional, signature.parameters):
        signature.given[k] = signature.defaults[k]
    names = word(keywords + LENGTH) if keywords != 0 else 0
    for j in range(names):
        k = named(signature, word(keywords + ITEMS + 8 * j), positional)
        if k == NOWHERE:
            return False
        signature.given[k] = word(arguments + 8 * (positional + j))
    return True


@compiled
def placed(signature, array):
    """Whether the arguments that were read may be those of a call of the table, in whose order they are then."""
    leading = signature.given[signature.leading]
    if leading == 0 or word(leading + TYPE) != array:
        return False
    for k in range(signature.parameters):
        place, value = signature.places[k], signature.given[k]
        if place != NOWHERE:
            if value == 0:
                return False
            signature.placed[place] = value
        elif value != signature.defaults[k]:
            return False
    return True


@compiled
def same_names(keywords, others):
    """Whether two tuples of names, or 0, have the same ones."""
    if keywords == others:
        return True
    if keywords == 0 or others == 0 or word(keywords + LENGTH) != word(others + LENGTH):
        return False
    unlike = 0
    for j in range(word(keywords + LENGTH)):
        unlike |= word(keywords + ITEMS + 8 * j) ^ word(others + ITEMS + 8 * j)
    return unlike == 0


@compiled
def as_lately(signature, table, arguments, positional, keywords):
    """Whether the latest call that was found is met again, whose arguments then are in the table."""
    if signature.kept == 0 or signature.changes != table.changes:
        return False
    if signature.by_position != positional or not same_names(signature.keywords, keywords):
        return False
    met = met_of(signature.kept)
    for j in range(positional + signature.by_name):
        k = signature.of_table[j]
        table.given[k] = word(arguments + 8 * j)
        if not alike(table, met, k, address_of(met) + signature.lengths[j]):
            return False
    return met.out < 0 or may_take_the_result(table, met)


@compiled
def remember(signature, table, kept, positional, keywords):
    """That this was the latest call that was found."""
    met = met_of(kept)
    names = word(keywords + LENGTH) if keywords != 0 else 0
    signature.kept = 0
    arrays = 0  # and numbers, that no option stands for
    for j in range(positional + names):
        k = j if j < positional else named(signature, word(keywords + ITEMS + 8 * (j - positional)), positional)
        place = signature.places[k]
        if place == NOWHERE or met.tuples != 0:
            return
        lengths = MET_SIZE
        for i in range(place):
            lengths += 16 * met.axes[i]
        signature.of_table[j], signature.lengths[j] = place, lengths
        arrays += met.kinds[place] != SAME
    for k in range(met.count):
        arrays -= met.kinds[k] != SAME
    if arrays != 0:
        return
    if signature.keywords != keywords:
        before = signature.keywords
        if keywords != 0:
            keep(keywords)
        signature.keywords = keywords
        if before != 0:
            drop(before)
    signature.by_position, signature.by_name = positional, names
    signature.kept, signature.changes = kept, table.changes


@compiled
def kept_call_of(signature, table, arguments, positional, keywords):
    """The address of a call that was met with these arguments, which then are in the table, or 0."""
    if as_lately(signature, table, arguments, positional, keywords):
        return signature.kept
    if not read_arguments(signature, arguments, positional, keywords) or not placed(signature, table.array):
        return 0
    kept = kept_with(table, signature.addresses.placed, signature.count)
    if kept != 0:
        remember(signature, table, kept, positional, keywords)
    return kept


@compiled
def enter_verb(signature, arguments, count, keywords):
    """What a call of a verb returns."""
    table = table_at(signature.table)
    kept = kept_call_of(signature, table, arguments, count & BY_POSITION, keywords)
    result = run_kept(table, kept) if kept != 0 else NOT_TO_BE_HAD
    if result != NOT_TO_BE_HAD:
        return result
    return call(signature.otherwise, (signature.function, arguments, count, keywords))


@compiled
def enter_any(called, arguments, count, keywords, zero):
    """What a call of a verb returns, or of a table (``called``: the array of its words, then without ``keywords``).

    With 0 for what is called: from now on the verbs are those at the address in the place of arguments.
    """
    if called == 0:
        set_word(verbs_known(), arguments)
        return 0
    signature = signature_of(called)
    if signature != 0:
        return enter_verb(signature_at(signature), arguments, count, keywords)
    return call(recalling(0), (called, arguments, count))


entering = c_function(enter_any, "tridiag_enter", 4, types.int64)


def enter(called, arguments, count, keywords):
    return call(entering(0), (called, arguments, count, keywords))


def build():
    """Two functions of CPython at one address.

    PyObject *enter(PyObject *verb, PyObject *const *arguments, size_t count, PyObject *keywords), and
    PyObject *enter(PyObject *table, PyObject *const *arguments, Py_ssize_t count).
    """
    return cfunc(types.int64(*(types.int64,) * 4), error_model="numpy")(enter)
