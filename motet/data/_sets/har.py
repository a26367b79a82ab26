"""Smartphone activity by person: 10,411 windows of 2.56 s, 6 channels, 30 people, 6 activities.

From the raw signals of UCI's "Smartphone-Based Recognition of Human Activities and Postural
Transitions": 50 Hz, acceleration in g and rotation in rad/s. Windows have 128 samples and start
every 64, each inside one labelled stretch; postural transitions are left out.

Neighbouring windows share half of their samples, so a random split would put the same second on
both sides. Each person went through the protocol at least twice: the first recording is for
training and validation, the others are for test.

J.-L. Reyes-Ortiz, L. Oneto, A. Samà, X. Parra, D. Anguita. "Transition-aware human activity
recognition using smartphones." Neurocomputing, 2016.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_raw
from motet.errors import DataError

WHERE = (
    "the folder RawData, with labels.txt and the signals, is in the archive at "
    "https://archive.ics.uci.edu/dataset/341/."
)
WINDOW, STRIDE = 128, 64
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "lying")
_VALIDATION = 0.2


def decode_raw(held: Held) -> Arrays:
    """Read UCI's raw recordings; labels.txt lists the person and activity of each stretch."""
    stretches = np.loadtxt(io.BytesIO(held.read("labels.txt")), dtype=np.int64, ndmin=2)
    recordings, people = len(np.unique(stretches[:, 0])), len(np.unique(stretches[:, 1]))
    if (recordings, people) != (61, 30):
        raise DataError(
            "labels.txt should name 61 recordings of 30 people; it names "
            f"{recordings} of {people}. Get it again: {held.where}"
        )
    return cut_recordings(held, stretches)


def cut_recordings(held: Held, stretches: NDArray[np.int64]) -> Arrays:
    """Cut the recordings into windows.

    Args:
        held: The signal files.
        stretches: Rows of recording, person, activity, first and last sample, counted from 1.
    """
    windows, facts = [], []
    for recording, person, repetition in _recordings(stretches):
        signal = np.hstack([_signal(held, kind, recording, person) for kind in ("acc", "gyro")])
        for _, _, activity, first, last in stretches[stretches[:, 0] == recording]:
            if activity <= len(ACTIVITIES):  # the rest are transitions
                cut = cut_windows(signal[first - 1 : last])
                windows.append(cut)
                facts += [(activity - 1, person, repetition)] * len(cut)
    y, subject, experiment = np.array(facts, np.int64).T
    return assemble(np.concatenate(windows), y, subject, experiment)


def cut_windows(signal: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cut a stretch [samples, channels] into overlapping windows [windows, channels, samples]."""
    if len(signal) < WINDOW:
        return np.empty((0, signal.shape[1], WINDOW), np.float32)
    return np.lib.stride_tricks.sliding_window_view(signal, WINDOW, axis=0)[::STRIDE]


def _recordings(stretches: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each recording, its person, and that person's previous recordings."""
    made: dict[int, int] = {}
    for recording, person in sorted({(int(row[0]), int(row[1])) for row in stretches}):
        yield recording, person, made.get(person, 0)
        made[person] = made.get(person, 0) + 1


def _signal(held: Held, kind: str, recording: int, person: int) -> NDArray[np.float32]:
    name = f"{kind}_exp{recording:02d}_user{person:02d}.txt"
    if name not in held.paths:
        raise DataError(
            f"labels.txt names recording {recording} of person {person}, but {name} is not in the "
            f"same folder. Get it: {held.where}"
        )
    return np.loadtxt(io.BytesIO(held.read(name)), dtype=np.float32, ndmin=2)


def decode_windows(held: Held) -> Arrays:
    """Read the converted copy, which has the same windows as scaled 16-bit integers."""
    with np.load(io.BytesIO(held.read("hapt_windows.npz"))) as saved:
        x = (saved["x"].astype(np.float32) * saved["scale"]).transpose(0, 2, 1)
        return assemble(x, saved["y"].astype(np.int64), saved["subject"], saved["experiment"])


def assemble(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    subject: NDArray[np.integer],
    experiment: NDArray[np.integer],
) -> Arrays:
    """Add each window's client and split."""
    return {
        "x": np.ascontiguousarray(x),
        "y": y,
        "clients": np.array([f"person-{number:02d}" for number in subject]),
        "split": split(y, subject, experiment),
    }


def split(
    y: NDArray[np.int64], subject: NDArray[np.integer], experiment: NDArray[np.integer]
) -> NDArray[np.str_]:
    """Put repetitions in "test", and the last fifth of each activity's first recording in "val".

    The window at the boundary overlaps its neighbours on both sides; it gets "" and is not used.
    """
    chosen = np.where(experiment > 0, "test", "train")
    for person in np.unique(subject):
        for activity in np.unique(y):
            rows = np.flatnonzero((experiment == 0) & (subject == person) & (y == activity))
            cut = round((1 - _VALIDATION) * len(rows))
            chosen[rows[cut : cut + 1]] = ""
            chosen[rows[cut + 1 :]] = "val"
    return chosen


SOURCES = (
    Source(
        ("har", "har/RawData", "har/HAPT Data Set/RawData"),
        {"labels.txt": None},
        decode_raw,
        patterns=("acc_exp*_user*.txt", "gyro_exp*_user*.txt"),
    ),
    Source(
        ("har_by_subject", "har"),
        {"hapt_windows.npz": "a0f9d39a8a3892a4a383f14e4dbc04686ebe991121306782da8301367f008dc3"},
        decode_windows,
    ),
)


def load(sources: Sequence[Source] = SOURCES) -> Raw:
    """Return float32 [10411, 6, 128], three axes in g and three in rad/s, with each person's id."""
    return open_raw("har", sources, WHERE, labels=ACTIVITIES)


HAR = Dataset(
    name="har",
    summary="10,411 windows of phone sensors, one client per person (30), 6 activities",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)
