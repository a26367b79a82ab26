"""pfl-research's federated averaging in one process."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import networks
import shared
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Clock(TrainingProcessCallback):
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.seconds, self.started = [], time.perf_counter()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        now = time.perf_counter()
        self.seconds.append(now - self.started)
        self.started = now
        return False, Metrics()


def with_loss(net):
    net.loss = lambda x, y: networks.mean_loss(net(x), y)
    net.metrics = lambda *_: {}
    return net


def users(workload):
    """Each place of each cohort is a user: the same data in the order of that round."""
    places = [(n, p) for n in range(len(workload.cohorts)) for p in range(workload.about["cohort"])]
    walk = iter(places)
    x, y = torch.from_numpy(workload.x), torch.from_numpy(workload.y)

    def dataset(user):
        rows = torch.from_numpy(workload.order(*user))
        return Dataset((x[rows], y[rows]))

    return FederatedDataset(dataset, lambda: next(walk))


def main() -> None:
    memory = shared.Memory()
    workload, out, options = shared.arguments()
    torch.set_num_threads(int(options.get("threads", 2)))
    about = workload.about
    net = with_loss(networks.built(workload))
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    data, clock = users(workload), Clock()
    backend = SimulatedBackend(data, data, [WeightByDatapoints()])
    FederatedAveraging().run(
        NNAlgorithmParams(about["rounds"], 10**9, about["cohort"], None),
        backend,
        model,
        NNTrainHyperParams(about["batch"], 1, about["rate"]),
        callbacks=[clock],
    )
    final = {k: v.detach().numpy() for k, v in net.state_dict().items()}
    shared.report(out, workload, clock.seconds, final, memory)


main()
