"""Put the packages that Motet requires, and no others, into an environment, by links.

Usage: python core_only.py SITE_PACKAGES
"""

import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def closure(name: str) -> set[str]:
    """Return the names of all packages that a package requires, without extras."""
    found, left = set(), [name]
    while left:
        for line in metadata.requires(left.pop()) or []:
            needed = Requirement(line)
            if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                continue
            canonical = needed.name.lower().replace("_", "-")
            if canonical not in found:
                found.add(canonical)
                left.append(needed.name)
    return found


def link(name: str, target: Path) -> None:
    """Link everything that an installed package has in its site-packages folder."""
    distribution = metadata.distribution(name)
    home = Path(distribution.locate_file("")).resolve()
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "/")}
    for top in tops - {"__pycache__"}:
        place = target / top
        if (home / top).exists() and not place.exists():
            place.symlink_to(home / top)


if __name__ == "__main__":
    for each in sorted(closure("motet")):
        link(each, Path(sys.argv[1]))
