"""The web service of one exported model: /predict, /schema, /health and a page at /docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from fastapi_offline import FastAPIOffline

from motet._core.version import __version__
from motet._export.opening import Model
from motet._export.reading import read_rows
from motet._export.rows import Predictions, predict_table
from motet._serving.limits import BodyLimit
from motet._serving.refusals import REFUSALS, add_refusals
from motet._serving.requests import Problem, Reply, columns_of, described_schema, request_model
from motet.data import Schema


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request.

    Attributes:
        max_bytes: Size of the body.
        max_rows: Rows in one request.
        seconds: Time for the body to arrive.
    """

    max_bytes: int = 1_000_000
    max_rows: int = 1_000
    seconds: float = 30.0


def make_service(
    model: Model, schema: Schema, *, limits: Limits | None = None, strict: bool = False
) -> FastAPI:
    """Make the service of a model; its pages need no other server.

    Args:
        model: The model.
        schema: Its schema.
        limits: Limits of a request.
        strict: Whether rows that need a repair are refused.
    """
    limits = limits or Limits()
    about = _about(model.about)
    app = FastAPIOffline(
        redoc_url=None,
        title="A model made with Motet",  # constant: the page does not escape it
        description=(
            f'The model of the site "{about["client"]}": {about["method"]}, '
            f"round {about['round']}. {about['idea']}"
        ),
        version=__version__,
    )
    app.add_middleware(BodyLimit, max_bytes=limits.max_bytes, seconds=limits.seconds)
    add_refusals(app, nullable=schema.fills is not None)
    _add_routes(app, model, schema, about, limits, strict=strict)
    return app


def _add_routes(
    app: FastAPI,
    model: Model,
    schema: Schema,
    about: Mapping[str, Any],
    limits: Limits,
    *,
    strict: bool,
) -> None:
    wanted = request_model(schema, max_rows=limits.max_rows)

    def predict(request: Any) -> Reply:
        rows = read_rows(columns_of(request.rows, schema), schema)
        rows = rows._replace(row_name=lambda row: f"rows[{row}]")
        return _reply(predict_table(model.predict, schema, about["client"], rows, strict=strict))

    predict.__annotations__["request"] = wanted  # FastAPI reads the model from the signature
    refusals: dict[int | str, dict[str, Any]] = {
        code: {"model": Problem, "description": what} for code, what in REFUSALS.items()
    }
    app.post("/predict", response_model=Reply, summary="Predict rows", responses=refusals)(predict)

    @app.get("/schema", summary="The columns that rows need, and what is predicted")
    def show_schema() -> dict[str, Any]:
        return {**described_schema(schema), "model": about}

    @app.get("/health", summary="Whether the service works")
    def health() -> dict[str, Any]:
        return {"status": "ok", "model": about}

    @app.get("/", include_in_schema=False)
    def start() -> RedirectResponse:
        return RedirectResponse("docs")


def _about(about: Mapping[str, Any]) -> dict[str, Any]:
    """Choose what a caller may know about the model."""
    return {
        "client": about["client"],
        "method": about["method"]["name"],
        "idea": about["idea"],
        "round": about["round"],
        "motet": about["motet"],
    }


def _reply(found: Predictions) -> Reply:
    predictions: list[dict[str, Any]] = []
    for row, (best, remarks) in enumerate(zip(found.best, found.row_remarks, strict=True)):
        one: dict[str, Any] = {"row": row, "remarks": list(remarks)}
        if found.times is not None:
            curve = found.values[row].tolist()
            one |= {"value": best, "survival": dict(zip(found.times, curve, strict=True))}
        elif found.labels is None:
            one["value"] = best
        else:
            shares = found.values[row].tolist()
            chosen = {"labels": found.true_labels[row]} if found.together else {"label": best}
            one |= {**chosen, "probabilities": dict(zip(found.labels, shares, strict=True))}
        predictions.append(one)
    return Reply.model_validate({"predictions": predictions, "remarks": list(found.remarks)})
