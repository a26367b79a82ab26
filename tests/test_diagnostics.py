"""The noise terms of FedAlt's theorem, on losses whose terms are known."""

import numpy as np
import pytest
import torch
from torch import nn

import motet
from motet import FedAlt, FedSim, Local, Sgd
from motet.analysis._diagnostics import Noise, noise
from motet.errors import CapabilityError


class Line(nn.Module):
    """u x_0 + v x_1."""

    def __init__(self):
        super().__init__()
        self.u = nn.Parameter(torch.zeros(()))
        self.v = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.u * x[:, 0] + self.v * x[:, 1]


def half_squared_error(outputs, y):
    return 0.5 * (outputs - y).square()


LINE = motet.Task(Line, loss=half_squared_error, kind="values")
A = (np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0], [2.0, 0.0]]), np.array([1.0, -1.0, 2.0, 0.5]))
B = (np.array([[2.0, -1.0], [1.0, 1.0]]), np.array([3.0, 1.0]))


def as_run(batch_size=1, cohort=1, method=FedAlt, **fields):
    data = motet.data.from_arrays({"a": A, "b": B, "c": B, "d": A})
    made = method(batch_size=batch_size, **({"personal": ("v",)} | fields))
    return motet.run(made, LINE, data, rounds=0, cohort=cohort, init={"u": 0.5, "v": -0.25})


def residuals(client):
    x, y = client
    return 0.5 * x[:, 0] - 0.25 * x[:, 1] - y


def known():
    """Single-example gradients are x_j (prediction - y); the Hessian is the second moment of x."""
    slopes = [client[0] * residuals(client)[:, None] for client in (A, B)]
    sigma = np.mean([s.var(0) for s in slopes], axis=0)
    delta2 = np.var([s.mean(0)[0] for s in slopes])
    bent = np.stack([client[0].T @ client[0] / len(client[1]) for client in (A, B)])
    return sigma, delta2, np.abs(bent).max(0)


def test_every_term_has_its_known_value_on_quadratic_losses():
    sigma, delta2, bent = known()
    found = noise(as_run())
    assert found.sigma_u2 == pytest.approx(sigma[0], rel=1e-5)
    assert found.sigma_v2 == pytest.approx(sigma[1], rel=1e-5)
    assert found.delta2 == pytest.approx(delta2, rel=1e-5)
    assert (found.l_u, found.l_v) == pytest.approx((bent[0, 0], bent[1, 1]), rel=1e-5)
    assert found.l_uv == pytest.approx(bent[0, 1], rel=1e-5)
    assert found.chi2 == pytest.approx(bent[0, 1] ** 2 / (bent[0, 0] * bent[1, 1]), rel=1e-5)


def test_full_batches_have_no_variance_and_the_same_diversity():
    found = noise(as_run(batch_size=None))
    assert (found.sigma_u2, found.sigma_v2) == pytest.approx((0, 0), abs=1e-9)
    assert found.delta2 == pytest.approx(known()[1], rel=1e-5)


def test_larger_batches_have_the_variance_of_sampling_without_replacement():
    """s^2/B (n - B)/(n - 1) on average over orders: for n = 4, B = 2, a third of B = 1."""
    data = motet.data.from_arrays({"a": A, "b": A})
    made = FedAlt(personal=("v",), batch_size=2)
    run = motet.run(made, LINE, data, rounds=0, init={"u": 0.5, "v": -0.25})
    slopes = A[0] * residuals(A)[:, None]
    found = noise(run, epochs=100)
    assert found.sigma_u2 == pytest.approx(slopes.var(0)[0] / 3, rel=0.25)


def test_equal_clients_have_no_diversity():
    data = motet.data.from_arrays({"a": A, "b": A})
    run = motet.run(FedSim(personal=("v",)), LINE, data, rounds=0)
    assert noise(run).delta2 == pytest.approx(0, abs=1e-12)


def test_the_largest_curvature_is_found_among_many_directions():
    """A least-squares loss: L_u and L_uv are singular values of its Hessian's blocks."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    data = motet.data.from_arrays({"a": (x, rng.normal(size=(40, 1)).astype(np.float32))})

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.v = nn.Linear(4, 1, bias=False), nn.Linear(2, 1, bias=False)

        def forward(self, x):
            return self.u(x[:, :4]) + self.v(x[:, 4:])

    run = motet.run(FedAlt(personal=("v",)), motet.Task(Two, loss="mse"), data, rounds=0)
    hessian = 2 * x.T @ x / len(x)
    found = noise(run, iterations=60)
    assert found.l_u == pytest.approx(np.linalg.norm(hessian[:4, :4], 2), rel=1e-3)
    assert found.l_v == pytest.approx(np.linalg.norm(hessian[4:, 4:], 2), rel=1e-3)
    assert found.l_uv == pytest.approx(np.linalg.norm(hessian[:4, 4:], 2), rel=1e-3)


def test_a_separable_loss_has_no_cross_dependence_and_nothing_to_gain():
    apart = (np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 1.0]))
    data = motet.data.from_arrays({"a": apart, "b": apart})
    found = noise(motet.run(FedAlt(personal=("v",)), LINE, data, rounds=0))
    assert found.chi2 == pytest.approx(0, abs=1e-9)
    assert found.gain == pytest.approx(1)


def terms(**changed):
    given = {
        "sigma_u2": 0.0,
        "sigma_v2": 1.0,
        "delta2": 0.0,
        "l_u": 2.0,
        "l_v": 4.0,
        "l_uv": 1.0,
        "cohort": 2,
        "clients": 10,
    }
    return Noise(**(given | changed))


def test_the_condition_is_the_theorem_s():
    found = terms(sigma_u2=0.3, delta2=0.5)
    assert found.personal_side == pytest.approx(1 / 4 * (1 - 4 / 10))
    assert found.shared_side == pytest.approx(0.3 / (2 * 2) + 0.5 / (2 * 2) * (1 - 2 / 10))
    assert found.chi2 == pytest.approx(1 / 8)
    assert found.gain == pytest.approx((1 + 1 / 8) ** 0.5)


def test_noise_in_v_favours_fedsim_diversity_and_large_cohorts_favour_fedalt():
    assert terms().favours == "FedSim"
    assert terms(delta2=100.0).favours == "FedAlt"
    assert terms(sigma_u2=100.0).favours == "FedAlt"
    assert terms(sigma_u2=0.1, cohort=5).favours == "FedAlt"


def test_the_verdict_is_a_sentence_with_its_numbers():
    said = str(terms(delta2=100.0))
    assert "2 of 10 clients per round the theorem favours FedAlt by a factor of 1.06" in said
    assert "delta^2 = 100" in said
    assert "0.15 < 20" in said
    assert "FedSim:" in str(terms())


def test_the_cohort_of_the_run_decides_m():
    assert noise(as_run(cohort=0.5)).cohort == 2
    assert noise(as_run(cohort=3)).cohort == 3


def test_asking_changes_nothing_in_the_run_and_some_clients_can_be_asked_alone():
    run = as_run(optimizer=Sgd(lr=0.1))
    before = {c: float(run.clients[c]["v"]) for c in run.clients}
    alone = noise(run, clients=["a"])
    assert alone.delta2 == 0
    assert alone.clients == 4
    assert {c: float(run.clients[c]["v"]) for c in run.clients} == before


def test_a_small_classifier_with_normalisation_and_dropout_has_finite_terms():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2)
            )
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.body(x))

    rng = np.random.default_rng(0)
    data = motet.data.from_arrays(
        {c: (rng.normal(size=(9, 4)).astype(np.float32), rng.integers(0, 3, 9)) for c in "ab"},
        classes=3,
    )
    run = motet.run(FedSim(batch_size=4), motet.Task(Net), data, rounds=1)
    found = noise(run)
    assert 0 < found.sigma_u2 < 100
    assert 0 < found.sigma_v2 < 100
    # A loss that is not convex may depend more across the parts than within them.
    assert 0 < found.chi2 < 100


def test_methods_without_two_parts_are_refused():
    data = motet.data.from_arrays({"a": A, "b": B})
    with pytest.raises(CapabilityError, match="shared part of this run is empty"):
        noise(motet.run(Local(), LINE, data, rounds=0))
    with pytest.raises(CapabilityError, match="personal part of this run is empty"):
        noise(as_run(personal=()))
