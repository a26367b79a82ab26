"""The conformance suite on partial sharing and its relatives, with phases short enough to try."""

import pytest

from motet import Sgd
from motet.methods.fedala import FedALA
from motet.methods.fedbabu import FedBABU
from motet.methods.fedrecon import FedRecon
from motet.methods.fedrep import FedRep
from motet.methods.fedrod import FedRoD
from motet.methods.lg_fedavg import LGFedAvg
from motet.methods.residual import ResidualFL
from motet.testing import check_method

# FedBN needs normalisation layers to be more than FedAvg: see test_fedbn.py.
CONFIGURATIONS = (
    LGFedAvg(server_optimizer=Sgd(lr=0.5, momentum=0.5)),
    FedRep(head_epochs=2, adapt_epochs=1, norm="local_layers"),
    FedBABU(adapt_epochs=2),
    FedRecon(recon_epochs=1),
    FedRoD(adapt_epochs=2),
    ResidualFL(adapt_epochs=1),
    FedALA(first_epochs=2, adapt_epochs=1),
)


@pytest.mark.parametrize("method", CONFIGURATIONS, ids=lambda method: method.name)
def test_every_promise_is_kept(method):
    check_method(method)
