"""A client that was not there: each method serves it by its own rule."""

from __future__ import annotations

import motet

everybody = motet.data.load("digits", partition=motet.data.Dirichlet(clients=12, alpha=0.3), seed=1)
newcomer, *others = everybody.clients
data = everybody.select(others)
task = motet.Task(build=lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes))

own, held_out = everybody.examples(newcomer, "train"), everybody.examples(newcomer, "test")
for method in (motet.Local(), motet.FedAvg(), motet.FedAvgFT(), motet.FedPer()):
    run = motet.run(method, task, data, rounds=20, seed=0)
    predictor = run.adapt(own.x, own.y)
    right = (predictor.predict(held_out.x).argmax(-1) == held_out.y).float().mean()
    print(f"{method.name}: accuracy {right:.3f} on {len(held_out.y)} test examples of a new client")
