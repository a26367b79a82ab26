"""Twenty clients with two digits each: is one model for all good enough?"""

from __future__ import annotations

import motet

data = motet.data.load("digits", partition=motet.data.Pathological(clients=20, classes=2), seed=0)
task = motet.Task(build=lambda: motet.models.build("mlp", shape=data.shape, classes=data.classes))
print(data.heterogeneity())

for method in (motet.FedAvg(batch_size=16), motet.FedPer(personal=("head",), batch_size=16)):
    run = motet.run(method, task, data, rounds=20, cohort=0.5, seed=0)
    print(run.evaluate(split="test"))
