"""The loop is yours: evaluate, stop early, or look inside after any round."""

from __future__ import annotations

import motet

data = motet.data.load("digits", partition=motet.data.Pathological(clients=10, classes=3), seed=0)
task = motet.Task(build=lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes))

best, best_round = 0.0, 0
for done in motet.rounds(motet.FedPer(), task, data, rounds=60, cohort=0.5, seed=0):
    validation = done.evaluate(split="val")
    if validation.mean > best:
        best, best_round = validation.mean, done.number
        print(f"round {done.number}: validation accuracy {best:.3f}, mean over clients")
    if done.number - best_round == 10:
        print(f"no better for 10 rounds, stopping; {done.bytes_up / 1e3:.0f} kB went up per round")
        break
