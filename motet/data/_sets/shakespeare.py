"""Shakespeare by role: predict the next character of a role's lines. 37 plays, 1,349 roles.

An example is a window of 80 characters and the same window shifted by one; in the variant
"shakespeare-next" it is a window and the one character after it, as in LEAF. Each role's lines are
split by time: the first four fifths are for training, the rest for test. LEAF's "Shakespeare" is
the same task on a different edition, so results are similar but not directly comparable.

S. Caldas et al. "LEAF: a benchmark for federated settings." arXiv:1812.01097, 2018.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_arrays
from motet.errors import DataError

WHERE = (
    "the plays with their speakers marked, 37 files *_moby.xml, are in the folder texts/moby of "
    "https://github.com/okfn/shakespeare-material."
)
WINDOW = 80
STEP = 10  # characters between two windows with one target each; LEAF's begin at every character
ALPHABET = "\n !$&'(),-.234568:;?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz"
_TRAIN = 0.8
_TOKEN = np.full(256, -1, np.int16)
_TOKEN[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(len(ALPHABET))


class Role(NamedTuple):
    """All lines of one role, in the order of the play."""

    play: str
    name: str
    train: bytes
    test: bytes


def decode_plays(held: Held) -> Arrays:
    """Read the 37 plays from their XML."""
    if len(held.paths) != 37:
        raise DataError(
            f"the folder of the plays should hold 37 XML files; it holds {len(held.paths)}. "
            f"Get these files, and no others: {held.where}"
        )
    return assemble([role for name in sorted(held.paths) for role in roles_of(held, name)])


def roles_of(held: Held, name: str) -> Iterator[Role]:
    """Collect each role's lines in one play; speeches without a single speaker are left out."""
    try:
        play = ElementTree.fromstring(held.read(name))
    except ElementTree.ParseError as exc:
        raise DataError(
            f"{held.paths[name]} should be a play in XML, but cannot be read ({exc}). "
            f"Get it again: {held.where}"
        ) from exc
    lines: dict[str, list[str]] = {}
    for speech in play.iter("SPEECH"):
        speakers = [speaker.text for speaker in speech.iter("SPEAKER") if speaker.text]
        if len(speakers) == 1:
            said = lines.setdefault(speakers[0].strip().upper(), [])
            said.extend(_words(line) for line in speech.iter("LINE"))
    for role, said in lines.items():
        cut = round(_TRAIN * len(said))
        yield Role(play.findtext("TITLE", name), role, _join(said[:cut]), _join(said[cut:]))


def _words(line: ElementTree.Element) -> str:
    """Return the text of a line, including stage directions in it, without repeated spaces."""
    return " ".join("".join(line.itertext()).split())


def _join(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines if line).encode()


def decode_roles(held: Held) -> Arrays:
    """Read the converted copy: one text, and the positions where roles start and are split."""
    with np.load(io.BytesIO(held.read("shakespeare_roles.npz"))) as saved:
        text, start, cut = saved["text"].tobytes(), saved["start"], saved["split"]
        titles, play, names = saved["play_title"], saved["play"], saved["role"]
    return assemble(
        [
            Role(
                str(titles[play[i]]),
                str(names[i]),
                text[start[i] : cut[i]],
                text[cut[i] : start[i + 1]],
            )
            for i in range(len(cut))
        ]
    )


def assemble(roles: Sequence[Role]) -> Arrays:
    """Cut roles into windows, longest role first; a role needs at least one in each split."""
    blocks, clients, splits, lengths = [], [], [], []
    named = zip(client_names(roles), roles, strict=True)
    for client, role in sorted(named, key=lambda item: (-_length(item[1]), item[0])):
        train, test = cut_windows(role.train), cut_windows(role.test)
        if len(train) and len(test):
            blocks += [train, test]
            splits += ["train"] * len(train) + ["test"] * len(test)
            clients += [client] * (len(train) + len(test))
            lengths += [_length(role)] * (len(train) + len(test))
    return {
        "windows": np.concatenate(blocks),
        "clients": np.array(clients),
        "split": np.array(splits),
        "role_length": np.array(lengths),
    }


def _length(role: Role) -> int:
    return len(role.train) + len(role.test)


def cut_windows(text: bytes) -> NDArray[np.int16]:
    """Cut text into windows [windows, 81]: 80 characters and the next; the rest is dropped."""
    tokens = tokenize(text)
    if len(tokens) <= WINDOW:
        return np.empty((0, WINDOW + 1), np.int16)
    return np.lib.stride_tricks.sliding_window_view(tokens, WINDOW + 1)[::WINDOW]


def tokenize(text: bytes) -> NDArray[np.int16]:
    """Replace each character by its position in `ALPHABET`."""
    tokens = _TOKEN[np.frombuffer(text, np.uint8)]
    if (tokens < 0).any():
        strange = sorted({chr(text[place]) for place in np.flatnonzero(tokens < 0)})
        raise DataError(
            f"the plays should contain only the {len(ALPHABET)} characters of the Moby edition; "
            f"also found {strange}. Get that edition: {WHERE}"
        )
    return tokens


def client_names(roles: Sequence[Role]) -> list[str]:
    """Name clients "Play/ROLE" in ASCII letters; a repeated name gets a number.

    >>> client_names([Role("The Tempest", name, b"", b"") for name in ("PROSPERO", "[PROSPERO]")])
    ['The-Tempest/PROSPERO', 'The-Tempest/PROSPERO-2']
    """
    seen: Counter[str] = Counter()
    names = []
    for role in roles:
        title = re.sub(
            r"^The ((Famous )?History|Tragedy|Life)( and Death)?( of the Life)? of ", "", role.play
        )
        name = f"{_plain(title)}/{_plain(role.name)}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _plain(text: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", text.replace("'", "")).strip("-")


_READY_SUM = "215aa21c9005296ae126de5efe64745522295692423798395211aaa981d1a564"

SOURCES = (
    Source(("shakespeare", "shakespeare/moby"), {}, decode_plays, patterns=("*.xml",)),
    Source(
        ("shakespeare_by_role", "shakespeare"),
        {"shakespeare_roles.npz": _READY_SUM},
        decode_roles,
    ),
)


def load(min_chars: int = 1000, sources: Sequence[Source] = SOURCES) -> Raw:
    """Return int16 windows x and y [rows, 80], y shifted by one, with each row's role and split.

    Args:
        min_chars: Roles with fewer characters are left out.
        sources: The forms of the data set to look for.
    """
    arrays = open_arrays("shakespeare", sources, WHERE)
    # Longest role first, so that the roles that are long enough are a slice of the memory map.
    rows = int((arrays["role_length"] >= min_chars).sum())
    if not rows:
        raise DataError(
            f"no role has {min_chars:,} characters or more; the longest has "
            f"{arrays['role_length'].max():,}. Lower `min_chars`."
        )
    windows = arrays["windows"][:rows]
    return Raw(
        x=windows[:, :-1],
        y=windows[:, 1:],
        clients=arrays["clients"][:rows],
        split=arrays["split"][:rows],
        labels=tuple(ALPHABET),
        classes=len(ALPHABET),
    )


SHAKESPEARE = Dataset(
    name="shakespeare",
    summary="next character of Shakespeare's plays, one client per role (638 of 1,000+ characters)",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)


def load_next(min_chars: int = 1000, sources: Sequence[Source] = SOURCES) -> Raw:
    """Return int16 windows x [rows, 80] and the character after each, y [rows].

    Args:
        min_chars: Roles with fewer characters are left out.
        sources: The forms of the data set to look for.
    """
    whole = load(min_chars, sources)
    assert whole.clients is not None
    assert whole.split is not None
    changes = (whole.clients[1:] != whole.clients[:-1]) | (whole.split[1:] != whole.split[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    texts = np.split(np.asarray(whole.x), firsts[1:])
    lasts = np.asarray(whole.y)[np.append(firsts[1:], len(whole.y)) - 1, -1]
    blocks = [overlapping(text, last) for text, last in zip(texts, lasts, strict=True)]
    rows = np.repeat(firsts, [len(block) for block in blocks])
    windows = np.concatenate(blocks)
    return replace(
        whole,
        x=windows[:, :-1],
        y=windows[:, -1],
        clients=whole.clients[rows],
        split=whole.split[rows],
    )


def overlapping(text: NDArray[np.int16], last: np.int16) -> NDArray[np.int16]:
    """Cut the text of neighbouring windows anew: 81 characters, from every tenth one on."""
    tokens = np.append(text.reshape(-1), last)
    return np.lib.stride_tricks.sliding_window_view(tokens, WINDOW + 1)[::STEP]


SHAKESPEARE_NEXT = replace(
    SHAKESPEARE,
    name="shakespeare-next",
    summary="the character after 80 of Shakespeare's plays, one client per role",
    load=load_next,
)
