"""LibriSpeech by speaker: the spectrogram of an utterance, and its transcript.

An input is a log mel spectrogram [64, 1600]: 64 bands, a frame every 10 ms, 16 s, padded with
silence. A target is the transcript as 28 characters in 256 places, -1 after its end. Longer
utterances are left out. Train a network of your own with a loss of your own: Motet has no speech
model and no loss for unaligned sequences.

V. Panayotov et al. "Librispeech: an ASR corpus based on public domain audio books." ICASSP 2015.
"""

from __future__ import annotations

import string
import struct
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_arrays
from motet.errors import CapabilityError, DataError, one_line

WHERE = "train-clean-100.tar.gz, unpacked, is at https://www.openslr.org/12."
ALPHABET = " '" + string.ascii_uppercase
RATE, BANDS, FRAMES, CHARACTERS = 16_000, 64, 1600, 256
HOP, WINDOW = RATE // 100, RATE // 40  # 10 and 25 ms
QUIETEST = np.float32(np.log(1e-6))


class Utterance(NamedTuple):
    """A recording and what was said."""

    speaker: str
    audio: Path
    text: str


def utterances(held: Held) -> Iterator[Utterance]:
    """Read the transcripts: a file per chapter, a line per utterance."""
    for name, path in sorted(held.paths.items()):
        for number, line in enumerate(held.read(name).decode("utf-8", "replace").splitlines(), 1):
            if not line.strip():
                continue
            key, _, text = line.strip().partition(" ")
            text = text.upper()
            speaker, _, rest = key.partition("-")
            if not (speaker and rest and text):
                raise DataError(
                    f'{path}, line {number}: expected "speaker-chapter-number TEXT", found '
                    f'"{line[:40]}". Get the file again: {held.where}'
                )
            strange = set(text) - set(ALPHABET)
            if strange:
                raise DataError(
                    f"{path}, line {number}: transcripts have the letters A to Z, spaces and "
                    f"apostrophes; found {sorted(strange)[:4]}. Get the file again: {held.where}"
                )
            audio = path.parent / f"{key}.flac"
            yield Utterance(speaker, audio if audio.is_file() else audio.with_suffix(".wav"), text)


def decode(held: Held) -> Arrays:
    """Read every utterance that fits."""
    sounds, texts, clients = [], [], []
    for said in utterances(held):
        samples = read_audio(said.audio, held.where)
        if len(said.text) > CHARACTERS or len(samples) > FRAMES * HOP:
            continue
        sounds.append(log_mel(samples).astype(np.float16))
        tokens = [ALPHABET.index(letter) for letter in said.text]
        texts.append(np.array(tokens + [-1] * (CHARACTERS - len(tokens)), np.int8))
        clients.append(f"speaker-{said.speaker}")
    if not sounds:
        raise DataError(f"no utterance is short enough, or there is none. Get them: {held.where}")
    return {"x": np.stack(sounds), "y": np.stack(texts), "clients": np.array(clients)}


def read_audio(path: Path, where: str) -> NDArray[np.float32]:
    """Read a .flac or .wav file of one channel at 16 kHz, as numbers in [-1, 1]."""
    try:
        samples, rate = _wav(path) if path.suffix == ".wav" else _flac(path)
    except (OSError, ValueError, RuntimeError, EOFError, struct.error, Warning) as reason:
        raise DataError(
            f"{path} cannot be read as audio ({one_line(reason)[:120]}). Get it again: {where}"
        ) from None
    if rate != RATE or samples.ndim != 1:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise DataError(
            f"{path} should have one channel at {RATE} Hz; it has {channels} at {rate} Hz."
        )
    return samples


def _wav(path: Path) -> tuple[NDArray[np.float32], int]:
    from scipy.io import wavfile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks that are no sound
        warnings.filterwarnings("error", "Reached EOF")  # fewer samples than the header promises
        rate, samples = wavfile.read(path)
    if samples.dtype == np.uint8:  # 8 bits: silence is 128
        samples = (samples.astype(np.int16) - 128) * 256
    scale = np.iinfo(samples.dtype).max if samples.dtype.kind == "i" else 1
    return (samples / scale).astype(np.float32), int(rate)


def _flac(path: Path) -> tuple[NDArray[np.float32], int]:
    try:
        import soundfile
    except ImportError:
        raise CapabilityError(
            f'{path.name} is a FLAC file, which needs soundfile: pip install "motet[readers]".'
        ) from None
    samples, rate = soundfile.read(path, dtype="float32")
    return np.asarray(samples, np.float32), int(rate)


def log_mel(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute the log mel spectrogram [bands, frames] of at most 16 s, padded with silence."""
    padded = np.zeros(FRAMES * HOP + WINDOW, np.float32)
    padded[: len(samples)] = samples[: len(padded)]
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[: FRAMES * HOP : HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW), axis=1)) ** 2  # [frames, frequencies]
    heard = power @ mel_filters(power.shape[1]).T
    return np.maximum(np.log(heard + 1e-9), QUIETEST).T.astype(np.float32)


def mel_filters(frequencies: int) -> NDArray[np.float64]:
    """Make triangular filters [bands, frequencies], equally spaced in mel."""
    highest = 2595 * np.log10(1 + RATE / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, highest, BANDS + 2) / 2595) - 1)
    hertz: NDArray[Any] = np.linspace(0, RATE / 2, frequencies)
    rising = (hertz - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - hertz) / np.diff(corners)[1:, None]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)))


SOURCES = (
    *(
        Source((folder,), {}, decode, patterns=("*/*/*.trans.txt",))
        for folder in ("librispeech/train-clean-100", "LibriSpeech/train-clean-100", "librispeech")
    ),
    # Other parts, such as dev-clean: all that are there.
    Source(("librispeech", "LibriSpeech"), {}, decode, patterns=("*/*/*/*.trans.txt",)),
)


def load(sources: Sequence[Source] = SOURCES) -> Raw:
    """Return spectrograms [rows, 64, 1600] and transcripts [rows, 256], with their speakers."""
    arrays = open_arrays("librispeech", sources, WHERE)
    return Raw(
        x=arrays["x"],
        y=arrays["y"],
        clients=arrays["clients"],
        labels=tuple(ALPHABET),
        classes=len(ALPHABET),
    )


LIBRISPEECH = Dataset(
    name="librispeech",
    summary="transcripts of audio books from spectrograms, one client per speaker",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)
