"""Refusals of a service: what was expected, what was sent, and what to send instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from motet._serving.limits import TOO_LARGE, TOO_SLOW
from motet.errors import MotetError, StateError

UNREADABLE, UNUSABLE, FAILED = 400, 422, 500
REFUSALS = {
    UNREADABLE: "The body is not JSON that can be read",
    TOO_SLOW: "The body did not arrive in time",
    TOO_LARGE: "The body is too large",
    UNUSABLE: "Rows that cannot be used",
}
SHOWN = 80  # characters of a wrong value in a reply
MOST = 10  # sentences in a reply
# What was expected, by the kind of error; other kinds say it themselves.
EXPECTED = {
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_unicode": "text in Unicode",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list of rows",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
}
FORMS = ("list_type", "model_type", "model_attributes_type", "dict_type")
EXAMPLE = '{"rows": [{"COLUMN": VALUE}]}'


def add_refusals(app: FastAPI, *, nullable: bool) -> None:
    """Answer wrong requests in sentences; `nullable` says whether a value may be missing."""
    app.state.or_null = ", or null if it is unknown" if nullable else ""
    app.add_exception_handler(RequestValidationError, _refuse_request)
    app.add_exception_handler(MotetError, _refuse_rows)
    app.add_exception_handler(HTTPException, _refuse)


def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = error.detail
    if error.status_code == UNREADABLE:  # FastAPI gives no reason
        said = (
            "the body is not JSON that can be read: its text is not UTF-8, a number has thousands "
            f"of digits, or lists are nested too deeply. Send {EXAMPLE}."
        )
    return JSONResponse({"detail": said}, status_code=error.status_code, headers=error.headers)


def _refuse_request(request: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a request, once for each place."""
    assert isinstance(error, RequestValidationError)
    by_place: dict[str, list[Mapping[str, Any]]] = {}
    for found in error.errors():
        by_place.setdefault(_path(found["loc"]), []).append(found)
    or_null, first = request.app.state.or_null, list(by_place.items())[:MOST]
    sentences = [_sentence(where, found, or_null) for where, found in first]
    if len(by_place) > MOST:
        sentences.append(f"There are {len(by_place) - MOST} more such places.")
    return JSONResponse({"detail": " ".join(sentences)}, status_code=UNUSABLE)


def _sentence(where: str, found: Sequence[Mapping[str, Any]], or_null: str) -> str:
    one = found[0]
    kind, sent = one["type"], one.get("input")
    said = _on_whole(where, kind, sent, one.get("ctx", {}))
    if said is not None:
        return said
    expected = " or ".join(dict.fromkeys(EXPECTED.get(f["type"], f["msg"]) for f in found))
    name = where.rpartition(".")[2]
    return f"{where}: expected {expected}; got {_shown(sent)}. Send {expected} for {name}{or_null}."


def _on_whole(where: str, kind: str, sent: Any, context: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the form of a request; None if only a value is wrong."""
    if isinstance(sent, bytes):
        return "the body was not sent as JSON. Send the header Content-Type: application/json."
    if kind == "too_long":
        return (
            f"{where}: expected at most {context['max_length']} rows; got {len(sent)}. Send them "
            "in several requests, or start the service with a larger --max-rows."
        )
    wrong = {
        "json_invalid": f"the body is not valid JSON: {context.get('error', 'unreadable')}.",
        "missing": f"{where} is missing.",
        "too_short": f"{where}: expected at least one row; got none.",
        **{form: f"{where}: expected {EXPECTED[form]}; got {_shown(sent)}." for form in FORMS},
    }
    if kind == "missing" and where != "rows":
        return f"{where} is missing. Send a value: the model was trained without missing values."
    return f"{wrong[kind]} Send {EXAMPLE}." if kind in wrong else None


def _shown(value: Any) -> str:
    """Write a value as it was sent, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()  # half a surrogate pair cannot be sent back
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    return f"{text[:SHOWN]}..." if len(text) > SHOWN else text


def _path(place: Sequence[Any]) -> str:
    """Write the place of an error as a path, without the names of alternatives of a type."""
    path = ""
    for step in place[1:]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif path.count(".") < 1 and step not in ("function-after", "constrained-float"):
            path += f".{step}" if path else step
    return path or "the body"


def _refuse_rows(request: Request, error: Exception) -> JSONResponse:
    """Say why rows cannot be used; flags are for tables, a caller can only send another value."""
    said, flags, _ = str(error).partition(", or treat it as missing with `")
    said = f"{said}{request.app.state.or_null}." if flags else said
    code = FAILED if isinstance(error, StateError) else UNUSABLE
    return JSONResponse({"detail": said}, status_code=code)
