"""Seeded mutations of Flower messages: header values, arrays, records, and raw bytes.

`MOTET_MESSAGES=20000` sends as many replies and as many requests, divided among all methods.
"""

from __future__ import annotations

import io
import math
import os
from contextlib import suppress
from typing import Any

import array_mutations
import numpy as np
from array_mutations import pick, replace_an_array, with_bytes
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

MESSAGES = int(os.environ.get("MOTET_MESSAGES", "2000"))  # replies, and as many requests

INTEGERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 5, 10**6, 2**31, 2**53 + 1, 2**62, 2**63 - 1)
FLOATS = (
    float("nan"), float("inf"), float("-inf"), -1e300, -1e9, -1.0, -0.0, 5e-324, 0.5, 7.0, 1e12,
    1e39, 1e100, 1e300, 1.7e308,
)  # fmt: skip
TEXTS = (
    "", "x", "0", "nan", "\x1b[2J\x1b]0;owned\x07", "\u202eevil", "\x00", "a\nb\r\nc",
    "x" * 100_000, "../../etc/passwd", "test", "train", "val", "after_local", "%s%n{0}",
    "\U0001f600" * 500, "\ud7ff\ufffe", "\u200b\u3164", "A\u0300" * 100, "\x9b31m",
    "${HOME}", "1e400",
)  # fmt: skip
OTHERS = (
    True, False, b"", b"\xff" * 50, [], [1, 2], [1.5], ["x"] * 3, [True], [b"x"], [0] * 10_000,
)  # fmt: skip
NAMES = (
    "refused", "declined", "diverged", "undefined", "examples", "value", "loss", "weight",
    "gradients", "round", "client", "agreed", "clients", "split", "point", "1.value", "",
    "x\x1b[1m",
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e30, 1e20, -1e12, -1.0, -0.0, 0.0, 1e-45)
KINDS = (
    "f4", "f8", "f2", ">f4", "i8", "i4", "i1", "u1", "u8", "?", "c8", "c16", "U3", "S4", "M8[s]",
    "V8", "f4,i4", "V2", "f16", "m8[s]", "U0", "(2,)f4",
)  # fmt: skip
SHAPES = ((), (0,), (1,), (7,), (2, 2), (0, 10**9), (0, 2**31, 2**31), (1,) * 20, (1,) * 32)
PARTS = (  # of the text in front of an array
    *(
        (b"(", start)
        for start in (
            b"(True,",
            b"(-1,",
            b"(10**9,",
            b"((" * 500,
            b"(" + b"9" * 20,
            b"(2147483648,",
            b"(0,",
            b"(4294967296,4294967296,",
            b"(1.0,",
            b"('1',",
            b"(-5,",
            b"(False,",
            b"(1j,",
        )
    ),
    *(
        (b"'<f4'", kind)
        for kind in (b"'|O' ", b"'<f8'", b"'>f4'", b"'<f0'", b"1.50 ", b"'<c8'", b"'=f4'")
    ),
    *((b"False", order) for order in (b"True ", b"None ")),
    (b"'shape'", b"'shap_'"),
    (b"{", b"["),
    (b", }", b"L }"),
    (b"NUMPY", b"NUMPX"),
    (b"\x01", b"\x02"),
    (b"\x01", b"\x09"),
)


def copied(content: RecordDict) -> RecordDict:
    """Copy the records of a message; arrays are shared, since nobody writes into them."""
    return RecordDict({name: type(record)(dict(record)) for name, record in content.items()})


def mutated(content: RecordDict, rng: np.random.Generator) -> tuple[RecordDict, list[str]]:
    """Return a copy of a message's content with one to three mutations, and their names."""
    content, told = copied(content), []
    for _ in range(rng.integers(1, 4)):
        mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
        with suppress(TypeError):  # Flower refuses some values after an earlier mutation
            mutation(content, rng)
        told.append(mutation.__name__)
    return content, told


def any_value(rng: np.random.Generator) -> Any:
    return pick(pick((INTEGERS, FLOATS, TEXTS, OTHERS), rng), rng)


def change_a_value(content: RecordDict, rng: np.random.Generator) -> None:
    header = content.get("header", ConfigRecord())
    if header:
        header[pick(sorted(header), rng)] = any_value(rng)


def change_a_number(content: RecordDict, rng: np.random.Generator) -> None:
    """Change a value to another of its own kind, which only its range can refuse."""
    header = content.get("header", ConfigRecord())
    numbers = [name for name in sorted(header) if type(header[name]) in (int, float)]
    if numbers:
        name = pick(numbers, rng)
        header[name] = pick(INTEGERS if type(header[name]) is int else FLOATS, rng)


def add_a_value(content: RecordDict, rng: np.random.Generator) -> None:
    if "header" in content:
        content["header"][pick(NAMES, rng)] = any_value(rng)


def remove_a_value(content: RecordDict, rng: np.random.Generator) -> None:
    header = content.get("header", ConfigRecord())
    if header:
        del header[pick(sorted(header), rng)]


def spoil_numbers(content: RecordDict, rng: np.random.Generator) -> None:
    def spoil(array: Array) -> Array:
        found = array.numpy().copy()
        if found.size and found.dtype.kind in "fiu":
            value = pick(NUMBERS if found.dtype.kind == "f" else INTEGERS[1:9], rng)
            found.flat[int(rng.integers(found.size))] = value
            if rng.random() < 0.3:
                found[...] = value
        return Array(found)

    replace_an_array(content, rng, spoil)


def another_kind(content: RecordDict, rng: np.random.Generator) -> None:
    kind = np.dtype(pick(KINDS, rng))
    replace_an_array(content, rng, lambda array: plain(np.zeros(shape_of(array), kind)))


def another_shape(content: RecordDict, rng: np.random.Generator) -> None:
    shape = pick(SHAPES, rng)
    replace_an_array(content, rng, lambda array: plain(np.zeros(shape, "f4")))


def spoil_the_text_of_an_array(content: RecordDict, rng: np.random.Generator) -> None:
    old, new = pick(PARTS, rng)
    replace_an_array(content, rng, lambda array: with_bytes(array, array.data.replace(old, new, 1)))


def spoil_bytes_of_an_array(content: RecordDict, rng: np.random.Generator) -> None:
    def spoil(array: Array) -> Array:
        spoilt = bytearray(array.data)
        for _ in range(rng.integers(1, 5)):
            place = int(rng.integers(len(spoilt) + 1))
            how = pick(("flip", "insert", "delete", "cut"), rng)
            if how == "flip" and place < len(spoilt):
                spoilt[place] ^= 1 << int(rng.integers(8))
            elif how == "insert":
                spoilt[place:place] = rng.bytes(int(rng.integers(1, 9)))
            elif how == "delete":
                del spoilt[place : place + int(rng.integers(1, 20))]
            elif how == "cut":
                del spoilt[place:]
        return with_bytes(array, bytes(spoilt))

    replace_an_array(content, rng, spoil)


def any_bytes_for_an_array(content: RecordDict, rng: np.random.Generator) -> None:
    replace_an_array(content, rng, lambda a: with_bytes(a, rng.bytes(int(rng.integers(200)))))


def remove_an_array(content: RecordDict, rng: np.random.Generator) -> None:
    arrays = content.get("arrays", ArrayRecord())
    if arrays:
        del arrays[pick(sorted(arrays), rng)]


def add_arrays(content: RecordDict, rng: np.random.Generator) -> None:
    if "arrays" in content:
        for number in range(pick((1, 2, 200), rng)):
            content["arrays"][f"{pick(TEXTS, rng)[:2000]}{number}"] = Array(np.zeros(0, "f4"))


def swap_two_arrays(content: RecordDict, rng: np.random.Generator) -> None:
    arrays = content.get("arrays", ArrayRecord())
    if len(arrays) > 1:
        one, other = pick(sorted(arrays), rng), pick(sorted(arrays), rng)
        arrays[one], arrays[other] = arrays[other], arrays[one]


def name_arrays_alike(content: RecordDict, rng: np.random.Generator) -> None:
    """Add arrays whose names could be taken for those of others."""
    arrays = content.get("arrays")
    if isinstance(arrays, ArrayRecord) and arrays:
        name = pick(sorted(arrays), rng)
        others = (
            name.upper(), f"{name}/", f"/{name}", f"./{name}", name.replace("/", "//"),
            f"{name}\x00", name.split("/")[0], f"{name}/{name}", f" {name}",
            name.replace("a", "\u0430"),
        )  # fmt: skip
        other, array = pick(others, rng), arrays[name]
        if rng.random() < 0.5:
            del arrays[name]
        arrays[other] = array


def another_byte_order(content: RecordDict, rng: np.random.Generator) -> None:
    def swapped(array: Array) -> Array:
        found = array.numpy()
        return plain(found.astype(found.dtype.newbyteorder(">")))

    replace_an_array(content, rng, swapped)


def more_bytes_than_promised(content: RecordDict, rng: np.random.Generator) -> None:
    extra = rng.bytes(pick((1, 4, 64, 100_000), rng))
    replace_an_array(content, rng, lambda array: with_bytes(array, array.data + extra))


def a_text_as_long_as_its_field(content: RecordDict, rng: np.random.Generator) -> None:
    """Write an array's own text with a length that is not its own."""

    def spoil(array: Array) -> Array:
        length = pick((0, 1, 65_535, len(array.data)), rng)
        return with_bytes(array, array.data[:8] + length.to_bytes(2, "little") + array.data[10:])

    replace_an_array(content, rng, spoil)


def empty_a_record(content: RecordDict, rng: np.random.Generator) -> None:
    if content:
        content[pick(sorted(content), rng)].clear()


def measure_instead(content: RecordDict, rng: np.random.Generator) -> None:
    """Put a record of another kind in the place of one, or beside it."""
    name = pick(("header", "arrays", "metrics"), rng)
    content.pop(name, None)
    content[name] = MetricRecord({pick(NAMES, rng): pick((1, 2.5, [1, 2], [0.5]), rng)})


def remove_a_record(content: RecordDict, rng: np.random.Generator) -> None:
    if content:
        del content[pick(sorted(content), rng)]


def add_a_record(content: RecordDict, rng: np.random.Generator) -> None:
    name = pick(("arrays", "header", "extra", "\x1b[1m"), rng)
    content.pop(name, None)
    content[name] = ConfigRecord({"x": 1})


def a_value_in_another_form(content: RecordDict, rng: np.random.Generator) -> None:
    """Send a value as text, bytes, a list, another kind of number, or almost itself."""
    header = content.get("header", ConfigRecord())
    if not header:
        return
    name = pick(sorted(header), rng)
    value = header[name]
    forms = [str(value), str(value).encode(), [value], [value, value], [], not value, f" {value} "]
    if type(value) in (int, float, bool):
        forms += [value + 1, value - 1, -value, value * 2, float(value), value + 0.5, value == 0]
        forms += [hex(int(value)), f"{value}\x00", bool(value)] if math.isfinite(value) else []
    else:
        forms += [
            str(value)[::-1],
            str(value).upper(),
            str(value)[:-1],
            f"{value}\n",
            f"\ufeff{value}",
        ]
    header[name] = pick(forms, rng)


def swap_two_values(content: RecordDict, rng: np.random.Generator) -> None:
    header = content.get("header", ConfigRecord())
    if len(header) > 1:
        one, other = pick(sorted(header), rng), pick(sorted(header), rng)
        header[one], header[other] = header[other], header[one]


def rename_a_value(content: RecordDict, rng: np.random.Generator) -> None:
    header = content.get("header", ConfigRecord())
    if header:
        name = pick(sorted(header), rng)
        others = (
            name.upper(), f" {name}", f"{name}\x00", name.replace("e", "\u0435"), f"{name}\u200b",
            f"0.{name}", f"1.{name}", name[:-1], "__class__", "x" * 50_000,
        )  # fmt: skip
        header[pick(others, rng)] = header[name]
        if rng.random() < 0.7:
            del header[name]


def very_many_values(content: RecordDict, rng: np.random.Generator) -> None:
    if "header" in content:
        for number in range(pick((50, 2000), rng)):
            content["header"][f"{number}.value"] = number


def deny_everything(content: RecordDict, rng: np.random.Generator) -> None:
    """Refuse, decline or diverge, in the words of a site, with anything for a reason."""
    if "header" in content:
        for name in ("refused", "declined", "diverged", "undefined")[: int(rng.integers(1, 5))]:
            content["header"][name] = pick(
                (True, False, "", "no", 0, 1.5, "\x1b[2J", "x" * 9999), rng
            )


MUTATIONS = (
    *array_mutations.MUTATIONS, a_value_in_another_form, a_value_in_another_form, swap_two_values,
    rename_a_value, very_many_values, deny_everything,
    change_a_value, change_a_number, change_a_number, add_a_value, remove_a_value, spoil_numbers,
    spoil_numbers, another_kind, another_shape, spoil_the_text_of_an_array, spoil_bytes_of_an_array,
    any_bytes_for_an_array, remove_an_array, add_arrays, swap_two_arrays, remove_a_record,
    add_a_record, name_arrays_alike, another_byte_order, more_bytes_than_promised,
    a_text_as_long_as_its_field, empty_a_record, measure_instead,
)  # fmt: skip


def plain(array: NDArray[Any]) -> Array:
    return with_bytes(Array(np.zeros(1, "f4")), as_npy(array))


def as_npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def shape_of(array: Array) -> tuple[int, ...]:
    return tuple(n for n in array.shape if n < 1000)


# -- mutations that change nothing ---------------------------------------------


def order_of_fortran(content: RecordDict, rng: np.random.Generator) -> None:
    replace_an_array(content, rng, lambda array: plain(np.asarray(array.numpy(), order="F")))


def order_of_names(content: RecordDict, rng: np.random.Generator) -> None:
    for record in content.values():
        held = [(name, record[name]) for name in sorted(record)]
        record.clear()
        for place in rng.permutation(len(held)):
            record[held[place][0]] = held[place][1]


def a_value_that_nobody_asked_for(content: RecordDict, rng: np.random.Generator) -> None:
    content["header"][f"note-{int(rng.integers(9))}"] = any_value(rng)


HARMLESS = (order_of_fortran, order_of_names, a_value_that_nobody_asked_for)
