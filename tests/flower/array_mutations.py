"""Further mutations of the arrays of a message: headers of npy files, numbers that lie, shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

MAGIC = b"\x93NUMPY"
DESCRIPTIONS = (  # what an npy header may claim about the numbers behind it
    "'<f4'", "'>f4'", "'=f4'", "'|f4'", "'f'", "'<f8'", "'<f2'", "'<i4'", "'|b1'", "'|O'", "'O'",
    "'|V4'", "'|V0'", "'|S0'", "'<U0'", "'|V2147483647'", "'<U2000000000'", "'|S2000000000'",
    "'(2,2)f4'", "'(100000,100000)f4'", "'(0,)f4'", "[('a','<f4')]", "[('a','<f4',(10**9,))]",
    "[('a','<f4'),('a','<f4')]", "[]", "{}", "None", "1", "1.5", "True", "''", "'<f4,<i4'",
    "'<M8[s]'", "'<m8[generic]'", "'<c8'", "'<g'", "('<f4',(1000,1000))", "b'<f4'", "'datetime'",
    "['<f4']", "'" + "f4," * 300 + "'", "'\\x00'", "'\\ud800'",
)  # fmt: skip
CLAIMED = (  # and about their shape
    "()", "(0,)", "(1,)", "(-1,)", "(-1,-1)", "(5,4)", "(4,5)", "(20,)", "(1,20)", "(5,4,1)", "5",
    "[5,4]", "(5.0,4)", "('5',4)", "(True,20)", "(None,)", "((5,),4)", "(5,4,)", "(2**31,)",
    "(4294967296,4294967296)", "(9223372036854775807,)", "(9223372036854775808,)", "(0,2**40)",
    "(18446744073709551616,)", "(0,9223372036854775807,9223372036854775807)", "(1,)*40", "(3,)*30",
    "(" + "1," * 33 + ")", "(" + "1," * 65 + ")", "(-9223372036854775808,)", "(1e3,)", "(5_0,)",
    "(0x14,)", "{5,4}", "'5,4'", "(" * 60 + ")" * 60, "(" + "9" * 4999 + ",)",
)  # fmt: skip
ORDERS = ("False", "True", "None", "0", "1", "'False'", "[]", "2")


def pick(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]


def with_bytes(array: Array, data: bytes) -> Array:
    return Array(array.dtype, array.shape, array.stype, data)


def replace_an_array(
    content: RecordDict, rng: np.random.Generator, change: Callable[[Array], Array]
) -> None:
    arrays = content.get("arrays")
    if isinstance(arrays, ArrayRecord) and arrays:
        name = pick(sorted(arrays), rng)
        try:
            arrays[name] = change(arrays[name])
        except Exception:
            return  # an earlier mutation has left nothing that can be read


def npy(text: str, data: bytes, version: bytes = b"\x01\x00") -> bytes:
    """Write an npy file with this text in front of its numbers."""
    size = 2 if version == b"\x01\x00" else 4
    raw = text.encode("utf-8", "surrogatepass")
    return MAGIC + version + len(raw).to_bytes(size, "little") + raw + data


def numbers_in(array: Array) -> bytes:
    """Return the bytes behind an array's text."""
    return array.numpy().tobytes()


def claims(about: str, shape: str, order: str = "False", more: str = "") -> str:
    return f"{{'descr': {about}, 'fortran_order': {order}, 'shape': {shape}, {more}}}"


def another_claim(content: RecordDict, rng: np.random.Generator) -> None:
    """Claim another type, shape or order in an npy header, each by itself or together."""

    def lie(array: Array) -> Array:
        about, shape, order = "'<f4'", str(tuple(array.shape)), "False"
        which = int(rng.integers(1, 8))
        about = pick(DESCRIPTIONS, rng) if which & 1 else about
        shape = pick(CLAIMED, rng) if which & 2 else shape
        order = pick(ORDERS, rng) if which & 4 else order
        text = claims(about, shape, order) + "\n" * int(rng.integers(2))
        return with_bytes(array, npy(text, numbers_in(array)))

    replace_an_array(content, rng, lie)


def an_odd_header(content: RecordDict, rng: np.random.Generator) -> None:
    """Write a header of another version, length, encoding or with other keys."""

    def odd(array: Array) -> Array:
        shape, data = str(tuple(array.shape)), numbers_in(array)
        good = claims("'<f4'", shape)
        texts = (
            good + " " * pick((1, 100, 9_000, 11_000, 60_000), rng) + "\n",
            claims("'<f4'", shape, more="'extra': 1, "),
            claims("'<f4'", shape, more="'shape': (1,), "),
            claims("'<f4'", shape, more="**{}, "),
            claims("__import__('os')", shape), f"dict({good})", f"[{good}]", good[:-1], good * 2,
            "\x00" * 50, "\ufeff" + good, good.replace("'", '"'),
            good.replace("'shape'", "b'shape'"),
            "(" * 2000, "{" * 90, "-" * 3000 + "1", "'" * 1001, good + "#" + "x" * 100,
            good.replace("shape", "sh\u0430pe"), "lambda: 0", "{1:2}", "", "0", "{" + "'a':" * 200,
        )  # fmt: skip
        version = pick((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x00\x00", b"\xff\x01"), rng)
        return with_bytes(array, npy(pick(texts, rng), data, version))

    replace_an_array(content, rng, odd)


def cut_anywhere(content: RecordDict, rng: np.random.Generator) -> None:
    def cut(array: Array) -> Array:
        return with_bytes(array, array.data[: int(rng.integers(len(array.data)))])

    replace_an_array(content, rng, cut)


def the_same_numbers_of_another_kind(content: RecordDict, rng: np.random.Generator) -> None:
    kind = pick(("f8", "f2", "c8", "i8", "?", ">f4", ">f8", "i4", "u1", "U32", "S32"), rng)

    def cast(array: Array) -> Array:
        with np.errstate(all="ignore"):
            found = np.asarray(array.numpy()).astype(kind)
        text = claims(repr(found.dtype.str), str(found.shape))
        return with_bytes(array, npy(text, found.tobytes()))

    replace_an_array(content, rng, cast)


def the_same_numbers_in_another_shape(content: RecordDict, rng: np.random.Generator) -> None:
    def reshaped(array: Array) -> Array:
        found = array.numpy()
        forms = (found.T, found.reshape(-1), found[None], found[..., None], found[::-1])
        return Array(np.ascontiguousarray(pick(forms, rng)))

    replace_an_array(content, rng, reshaped)


def more_or_fewer_rows(content: RecordDict, rng: np.random.Generator) -> None:
    def changed(array: Array) -> Array:
        found = np.atleast_1d(array.numpy())
        forms = (found[:-1], found[:0], np.concatenate([found, found]), found[1:])
        return Array(np.ascontiguousarray(pick(forms, rng)))

    replace_an_array(content, rng, changed)


def numbers_that_lie(content: RecordDict, rng: np.random.Generator) -> None:
    """Keep form and kind: only the values are others, as those of a site that cheats."""

    def lie(array: Array) -> Array:
        found = array.numpy().copy()
        if not found.size:
            return array
        if found.dtype.kind == "f":
            changes = (
                -found, found * 1e6, found * 1e-40, found * 0, found + 1, np.full_like(found, 1e19),
                np.full_like(found, np.finfo(found.dtype).tiny / 4), found[::-1],
                np.where(rng.random(found.shape) < 0.5, found, -found),
            )  # fmt: skip
        elif found.dtype.kind in "iu":
            shuffled = rng.permutation(found.reshape(-1)).reshape(found.shape)
            changes = (
                found + 1, found - 1, shuffled, np.full_like(found, found.flat[0]), found[::-1],
                found * 1000, -found - 1, np.full_like(found, np.iinfo(found.dtype).max),
                np.full_like(found, np.iinfo(found.dtype).min), found ^ 1,
            )  # fmt: skip
        else:
            changes = (~found,)
        return Array(np.ascontiguousarray(pick(changes, rng)).astype(found.dtype))

    with np.errstate(all="ignore"):
        replace_an_array(content, rng, lie)


def metadata_that_lie(content: RecordDict, rng: np.random.Generator) -> None:
    """Say something else about the bytes than their own header does."""

    def lie(array: Array) -> Array:
        kind = pick(("float32", "float64", "object", "", "\x1b[1m", "x" * 10_000), rng)
        shape = pick(((), (-1,), (10**9, 10**9), tuple(array.shape), (2**62,)), rng)
        return Array(
            kind, shape, pick(("numpy.ndarray", "pickle", "", "safetensors"), rng), array.data
        )

    replace_an_array(content, rng, lie)


MUTATIONS = (
    another_claim, another_claim, an_odd_header, cut_anywhere, the_same_numbers_of_another_kind,
    the_same_numbers_in_another_shape, more_or_fewer_rows, numbers_that_lie, numbers_that_lie,
    metadata_that_lie,
)  # fmt: skip
