"""The conformance suite on two-model, clustered, related and generated methods."""

import pytest

from motet import (
    APFL,
    CFL,
    IFCA,
    L2GD,
    MRMTL,
    Ditto,
    FedAMP,
    FedEM,
    FedProto,
    HeurFedAMP,
    MochaDeep,
    PerFedAvg,
    PFedHN,
    PFedMe,
    Sgd,
)
from motet.testing import check_method

CONFIGURATIONS = (
    Ditto(),
    Ditto(personal_epochs=2, server_optimizer=Sgd(lr=0.5, momentum=0.5)),
    MRMTL(),
    L2GD(p=0.5),
    APFL(),
    APFL(adaptive=False, alpha=0.3),
    PFedMe(inner_steps=2),
    PerFedAvg(variant="fo"),
    PerFedAvg(variant="hf"),
    PerFedAvg(variant="exact"),
    CFL(clusters=2),
    CFL(clusters=3, warmup=0, settled=5.0, alike=2.0),  # splits at once
    IFCA(),
    FedEM(),
    MochaDeep(),
    FedAMP(),
    HeurFedAMP(),
    FedProto(),
    FedProto(inference="head"),
    PFedHN(),
)


@pytest.mark.parametrize("method", CONFIGURATIONS, ids=lambda method: method.name)
def test_every_promise_is_kept(method):
    check_method(method)
