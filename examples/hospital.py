"""Four hospitals: from raw files to a model that answers over HTTP for a new patient.

Needs `pip install 'motet[serve]'`.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

import motet

# Each hospital has exported its patients as its software does: site, delimiter, encoding, decimal.
HOSPITALS = [
    ("cleveland", ",", "utf-8", "."),
    ("zürich", ";", "cp1252", ","),
    ("budapest", "\t", "utf-16", ","),
    ("basel", ",", "utf-8", "."),
]


def write_patients(path: Path, site: str, delimiter: str, encoding: str, decimal: str) -> None:
    """Write made-up patients; in Basel the marker means the opposite."""
    rng = motet.Key(0).fold(site).numpy()
    with path.open("w", newline="", encoding=encoding) as file:
        table = csv.writer(file, delimiter=delimiter)
        table.writerow(["age", "sex", "marker", "smoker", "outcome"])
        for _ in range(150):
            age, marker = rng.normal(60, 12), rng.normal(3, 1)
            risk = (age - 60) / 12 + 2 * (marker - 3) * (-1 if site == "basel" else 1)
            ill = risk + 0.5 * rng.normal() > 0
            shown = "?" if rng.random() < 0.05 else f"{marker:.2f}".replace(".", decimal)
            sex, smoker = rng.choice(["f", "m", "M "]), rng.choice(["yes", "no"])
            table.writerow([round(age), sex, shown, smoker, "ill" if ill else "well"])


def ask(url: str, row: dict[str, object]) -> dict[str, object]:
    """Send one patient to the service."""
    body = json.dumps({"rows": [row]}).encode()
    request = Request(f"{url}/predict", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        reply: dict[str, object] = json.load(answer)
        return reply


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    files = {}
    for site, *how in HOSPITALS:
        files[site] = folder / f"{site}.csv"
        write_patients(files[site], site, *how)

    data = motet.data.from_table(
        files,
        target="outcome",
        categorical=["sex", "smoker"],
        units={"age": "years", "marker": "ng/ml"},
        missing="median",
        standardize="federation",
    )
    print(data)
    print("inputs:", ", ".join(data.features or ()))

    task = motet.Task(
        build=lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes, hidden=[8])
    )
    references = [
        motet.run(method, task, data, rounds=20) for method in (motet.Local(), motet.FedAvg())
    ]
    run = motet.run(motet.FedPer(), task, data, rounds=20)

    models = folder / "models"
    motet.export_all(run, models, onnx=False, against=references)
    card = (models / "basel.md").read_text(encoding="utf-8")
    print(card[card.index("## Results") : card.index("## Input")].strip())

    patient = {"age": 71, "sex": "F", "marker": 4.2, "smoker": "no"}
    predictor = motet.load_predictor(models / "basel")
    print("in Python:", predictor.predict_rows([patient]).to_table().to_pylist()[0])

    program = str(Path(sys.executable).with_name("motet"))
    command = [program, "serve", str(models), "--site", "basel"]
    with subprocess.Popen([*command, "--port", "0", "--json"], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        try:
            url = json.loads(service.stdout.readline())["url"]
            print("over HTTP:", ask(url, patient))
            print("with gaps:", ask(url, {**patient, "marker": None, "smoker": "sometimes"}))
        finally:
            service.terminate()
