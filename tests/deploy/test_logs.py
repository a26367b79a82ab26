"""Logs: a level and a time on every line, as text or as JSON, whatever the program writes."""

from __future__ import annotations

import io
import json
import re

import pytest

from motet.deploy._logs import LEVELS, LogWriter

FLOWER = [
    "\x1b[92mINFO \x1b[0m:      Starting Flower SuperNode\n",
    "\x1b[93mWARNING \x1b[0m:   The server is slow\n",
    "  and here is more about it\n",
    "\x1b[92mINFO \x1b[0m:      \n",
    "INFO:     Uvicorn running on http://127.0.0.1:9094 (Press CTRL+C to quit)\n",
    "\x1b[91mERROR \x1b[0m:     it \x1b]0;title\x07 failed\n",
    "Traceback: of another program\n",
]
EXPECTED = [
    ("info", "Starting Flower SuperNode"),
    ("warning", "The server is slow"),
    ("warning", "  and here is more about it"),
    ("info", "Uvicorn running on http://127.0.0.1:9094 (Press CTRL+C to quit)"),
    ("error", "it \x1b]0;title\x07 failed"),
    ("error", "Traceback: of another program"),
]


def written(lines, **settings):
    stream = io.StringIO()
    log = LogWriter("site north", stream=stream, **settings)
    for line in lines:
        log.pass_on(line)
    return stream.getvalue().splitlines()


def test_json_lines_have_a_time_a_level_a_program_and_a_message():
    lines = [json.loads(line) for line in written(FLOWER, as_json=True)]
    assert [(line["level"], line["message"]) for line in lines] == EXPECTED
    assert {line["program"] for line in lines} == {"site north"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line["time"]) for line in lines)


def test_lines_of_text_cannot_steer_the_terminal():
    lines = written(FLOWER)
    assert len(lines) == len(EXPECTED)
    assert all("\x1b" not in line for line in lines)
    assert lines[0].endswith("INFO    site north: Starting Flower SuperNode")


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_leaves_out_what_is_below_it(level):
    lines = written(FLOWER, level=level, as_json=True)
    kept = [found for found, _ in EXPECTED if LEVELS.index(found) >= LEVELS.index(level)]
    assert [json.loads(line)["level"] for line in lines] == kept
