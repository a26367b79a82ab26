"""Options of a table, as users write them, and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from motet.data._columns import DATE_PARTS, DatePart
from motet.errors import RequestError, nearest

Kind = Literal["auto", "classes", "regression"]
Missing = Literal["error", "median", "mean", "indicator", "client-median", "client-mean"]
Standardize = Literal["none", "federation", "site"]
MISSING = ("error", "median", "mean", "indicator", "client-median", "client-mean")


class Filling(NamedTuple):
    """How missing values are filled.

    Attributes:
        by: "median", "mean", a constant, or None to refuse missing values.
        own: Whether a site fills with its own statistic.
        indicators: Whether columns with missing values get one more input that marks them.
    """

    by: Literal["median", "mean"] | float | None
    own: bool = False
    indicators: bool = False


NO_FILLING = Filling(None)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What `from_table` was asked for; see there."""

    target: str
    more_targets: tuple[str, ...] = ()  # beside the first: each is then a label of its own
    event: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    ordinal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dates: Mapping[str, tuple[DatePart, ...]] = field(default_factory=dict)
    date_format: str | None = None
    reference_date: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "auto"
    filling: Filling = NO_FILLING
    standardize: Standardize = "none"
    rare: float = 0
    merge_spellings: bool = True
    drop_missing_target: bool = False
    drop_missing_client: bool = False
    few_test_rows: int = 10
    na: tuple[str, ...] = ()
    decimal: str = "."

    @property
    def targets(self) -> tuple[str, ...]:
        """All columns to predict."""
        return (self.target, *self.more_targets)


def filling_of(missing: str | float, *, indicators: bool) -> Filling:
    """Read `missing=`."""
    if isinstance(missing, int | float) and not isinstance(missing, bool):
        return Filling(float(missing), indicators=indicators)
    if missing not in MISSING:
        raise RequestError(
            f"missing must be {', '.join(MISSING)} or a number, got {missing!r}.", option="missing"
        )
    if missing == "error":
        return Filling(None)
    if missing == "indicator":
        return Filling("median", indicators=True)
    by = str(missing).removeprefix("client-")
    assert by in ("median", "mean")
    return Filling(by, missing.startswith("client-"), indicators)  # type: ignore[arg-type]


def standardize_of(standardize: bool | str) -> Standardize:  # noqa: FBT001  # its own meaning
    """Read `standardize=`; true means over all sites."""
    if isinstance(standardize, bool):
        return "federation" if standardize else "none"
    known: dict[str, Standardize] = {"none": "none", "federation": "federation", "site": "site"}
    if standardize not in known:
        raise RequestError(
            f"standardize must be true, false, federation or site, got {standardize!r}.",
            option="standardize",
        )
    return known[standardize]


def pairs_of(
    given: Mapping[str, Any] | Sequence[str], option: str, known: Collection[str] = ()
) -> dict[str, Any]:
    """Read `{name: value}`, or a list of "name=value" as the command line has it.

    Args:
        given: The pairs.
        option: The option that has them.
        known: Names that there are, by which a pair with several "=" is divided.

    >>> pairs_of(["age=years"], "units")
    {'age': 'years'}
    >>> pairs_of(["a=b=c"], "units", known=["a"])
    {'a': 'b=c'}
    """
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    pairs = {}
    for text in [given] if isinstance(given, str) else given:
        name, value = _divided(text, known)
        if not name or not value:
            raise RequestError(f'{option} expects NAME=VALUE, got "{text}".', option=option)
        pairs[name.strip()] = value.strip()
    return pairs


def _divided(text: str, known: Collection[str]) -> tuple[str, str]:
    """Divide at the "=" before which a known name ends, else at the last one."""
    ends = [place for place, mark in enumerate(text) if mark == "="]
    for end in reversed(ends):
        if text[:end].strip() in known:
            return text[:end], text[end + 1 :]
    return (text[: ends[-1]], text[ends[-1] + 1 :]) if ends else (text, "")


def ordinal_of(
    given: Mapping[str, Sequence[str]] | Sequence[str], known: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Read the order of categories: `{"stage": ["I", "II"]}` or "stage=I<II".

    >>> ordinal_of(["stage=I<II<III"])
    {'stage': ('I', 'II', 'III')}
    """
    orders = {}
    for name, order in pairs_of(given, "ordinal", known).items():
        listed = order.split("<") if isinstance(order, str) else order
        orders[name] = tuple(str(category).strip() for category in listed)
        if len(orders[name]) < 2:
            raise RequestError(
                f'ordinal needs the categories of "{name}" in order, the lowest first, such as '
                f'"{name}=low<high"; got {order!r}.'
            )
    return orders


def dates_of(
    given: Mapping[str, str | Sequence[str]] | Sequence[str], known: Collection[str] = ()
) -> dict[str, tuple[DatePart, ...]]:
    """Read what is taken from dates: names of columns, or "birth=age" or "visit=year+month".

    >>> dates_of(["visit", "birth=age"])
    {'visit': ('year', 'day_of_year'), 'birth': ('age',)}
    """
    if not isinstance(given, Mapping):
        listed = [given] if isinstance(given, str) else given
        given = dict(_date(text, known) for text in listed)
    found: dict[str, tuple[DatePart, ...]] = {}
    for name, parts in given.items():
        wanted = tuple(parts.split("+")) if isinstance(parts, str) else tuple(parts)
        for part in wanted:
            if part not in DATE_PARTS:
                raise RequestError(
                    f'dates cannot take "{part}" from column "{name}"; {nearest(part, DATE_PARTS)}.'
                )
        found[str(name)] = wanted  # type: ignore[assignment]  # checked above
    return found


def _date(text: str, known: Collection[str]) -> tuple[str, str]:
    name, parts = _divided(text, known)
    is_name = not parts or text in known  # a name may hold "=", too
    return (text, "year+day_of_year") if is_name else (name, parts)
