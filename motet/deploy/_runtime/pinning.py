"""The experiment that a site has agreed to: a hash in the site's own settings.

A server sends the experiment with every message, as text. A site compares its hash with the pinned
one before it reads anything else in it: a config names data, code and work to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from typing import Any

from motet._engine.records import jsonable
from motet.deploy._layout import AGREED
from motet.deploy._runtime.parcels import Scalar
from motet.errors import StateError, WireError

VARIABLE = "MOTET_AGREED"  # the same as an environment variable
ANY = "any"  # instead of a hash: every experiment of the server is accepted
LONGEST_CONFIG = 1_000_000  # characters


def hash_of(experiment: str, tables: Mapping[str, Any]) -> str:
    """Return the hash of an experiment: the same for any order and formatting of its config.

    >>> hash_of("a", {"run": {"rounds": 2, "seed": 1}})[:8]
    'd9a37abc'
    >>> hash_of("a", {"run": {"seed": 1, "rounds": 2}})[:8]
    'd9a37abc'
    """
    plain = jsonable({experiment: tables})
    written = json.dumps(plain, sort_keys=True, ensure_ascii=False, default=str)  # dates, say
    return hashlib.sha256(written.encode()).hexdigest()


def hash_of_text(experiment: str, config: str) -> str:
    """Return the hash of an experiment whose config is given as TOML.

    Raises:
        WireError: It is not TOML, or too long.
    """
    if len(config) > LONGEST_CONFIG:
        raise WireError(f"a config has at most {LONGEST_CONFIG} characters; got {len(config)}.")
    try:
        return hash_of(experiment, tomllib.loads(config))
    except (ValueError, RecursionError) as reason:
        raise WireError(f"the experiment's config is not valid TOML: {reason}.") from None


def pinned(
    node_config: Mapping[str, Scalar], environment: Mapping[str, str] = os.environ
) -> frozenset[str]:
    """Return the hashes that a site accepts, from its node config and its environment.

    >>> sorted(pinned({"agreed": "aa, bb"}, {}))
    ['aa', 'bb']

    Raises:
        StateError: Both are given and differ.
    """
    found = [
        frozenset(str(text).replace(",", " ").split())
        for text in (node_config.get(AGREED, ""), environment.get(VARIABLE, ""))
    ]
    given = [hashes for hashes in found if hashes]
    if len(given) == 2 and given[0] != given[1]:
        raise StateError(
            f"this site has agreed to {_listed(given[0])} in its node config and to "
            f"{_listed(given[1])} in {VARIABLE}; make them equal, or remove one."
        )
    return given[0] if given else frozenset()


def check_offer(
    run_config: Mapping[str, Scalar],
    node_config: Mapping[str, Scalar],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Refuse an experiment that the site has not agreed to.

    Nodes of a simulation have no settings of their own, and are not asked.

    Raises:
        WireError: The server runs another experiment; both hashes are named.
        StateError: The site has not agreed to any experiment.
    """
    accepted = pinned(node_config, environment)
    if ANY in accepted or not (accepted or {"client", "data"} & node_config.keys()):
        return
    experiment, config = run_config.get("experiment"), run_config.get("config")
    if not isinstance(experiment, str) or not isinstance(config, str):
        raise WireError(
            "the server sent no experiment: its run config needs experiment and config."
        )
    offered = hash_of_text(experiment, config)
    if not accepted:
        raise StateError(
            f"this site has not agreed to an experiment, and the server runs {offered}. Compare it "
            f'with `motet deploy check`, and set {AGREED}="..." in the site\'s node config.'
        )
    if offered not in accepted:
        raise WireError(
            f"this site has agreed to the experiment {_listed(accepted)}, and the server runs "
            f"{offered}; start the server from the agreed one, or agree on the new one."
        )


def _listed(hashes: frozenset[str]) -> str:
    return ", ".join(sorted(hashes))
