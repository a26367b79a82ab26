"""`Schema`: how raw rows of a table become the inputs of a network, in training and afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from motet.data._columns import Column, Encoded, Scaling, Target
from motet.data._tables.cells import Cells, RowName
from motet.data._tables.encode import encode_rows
from motet.data._tables.schema_check import check_schema
from motet.data._tables.schema_json import fields_from_dict, to_dict
from motet.errors import RequestError, StateError, nearest


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Everything that is needed to turn raw rows of a table into inputs.

    Training rows and rows to predict go through the same `encode`.

    Attributes:
        columns: Input columns, in order.
        target: The column to predict.
        client: Column that names the site of a row; None if sites are named otherwise.
        na: Texts that mean a missing value, besides the usual ones (empty, ?, NA, n/a, NaN, null).
        merge_spellings: Whether case is ignored where categories and sites are compared.
        decimal: Decimal separator of numbers that are text.
        fills: What a missing value becomes, per input, before scaling; None refuses missing values.
        scaling: Scaling of the inputs over all sites; None leaves them as they are.
        site_fills: Fills of single sites, which take precedence.
        site_scaling: Scaling of single sites, which takes precedence.

    Example:
        >>> from motet.data import Column, Target
        >>> sex = Column(name="sex", kind="categorical", categories=("f", "m"))
        >>> target = Target(name="ill", labels=("no", "yes"))
        >>> schema = Schema(columns=(Column(name="age"), sex), target=target)
        >>> schema.feature_names
        ('age', 'sex=f', 'sex=m')
        >>> schema.encode({"age": ["40"], "sex": ["M"]}).x.tolist()
        [[40.0, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]
    target: Target
    client: str | None = None
    na: tuple[str, ...] = ()
    merge_spellings: bool = True
    decimal: str = "."
    fills: tuple[float, ...] | None = None
    scaling: Scaling | None = None
    site_fills: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    site_scaling: Mapping[str, Scaling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_schema(self)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(name for column in self.columns for name in column.features)

    def column(self, name: str) -> Column:
        """Find an input column by name.

        Args:
            name: Name of the column.
        """
        found = {column.name: column for column in self.columns}
        if name not in found:
            raise RequestError(f'the schema has no column "{name}"; {nearest(name, found)}.')
        return found[name]

    def encode(
        self,
        table: Any,
        site: str | Sequence[str] | NDArray[Any] | Cells | None = None,
        *,
        row_name: RowName | None = None,
    ) -> Encoded:
        """Turn raw rows into inputs.

        Args:
            table: A `pyarrow.Table`, or `{column: values}`. Other columns are ignored.
            site: The site of the rows, or one for each row; None reads the column `client` if the
                schema has statistics of single sites.
            row_name: Names a row in messages; by default "row 1" for the first.

        Returns:
            The inputs, and remarks with the number of rows that were repaired.

        Raises:
            DataError: A value that cannot be used: text in a number column, an infinity, or a
                missing value if the schema has no fills.

        Example:
            >>> schema = Schema(
            ...     columns=(Column(name="age"), Column(name="sex", kind="categorical",
            ...                                         categories=("f", "m"))),
            ...     target=Target(name="outcome", labels=("ill", "well")),
            ... )
            >>> schema.encode({"age": [50, 60], "sex": ["f", " M "]}).x.tolist()
            [[50.0, 1.0, 0.0], [60.0, 0.0, 1.0]]
        """
        return encode_rows(self, table, site, row_name)

    def at(self, site: str) -> Schema:
        """Return the schema of one site, without statistics of other sites.

        Args:
            site: Name of the site.
        """
        fills = self.site_fills.get(site, self.fills)
        scaling = self.site_scaling.get(site, self.scaling)
        return replace(self, fills=fills, scaling=scaling, site_fills={}, site_scaling={})

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        return to_dict(self)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Schema:
        """Read a schema from `to_dict`; anything else is refused.

        Raises:
            StateError: The dictionary is not a schema of this version.

        Args:
            written: Values that `to_dict` returned.
        """
        values = fields_from_dict(written)
        try:
            return cls(**values)
        except RequestError as error:
            raise StateError(f"this is not a usable schema: {error}") from None
