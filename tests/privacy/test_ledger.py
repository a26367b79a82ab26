import dataclasses
import json

import pytest
from torch import nn
from toys import arrays, largest_gap

import motet
from motet._engine.federation import start
from motet._runs.checkpoint import Checkpoint
from motet._runs.recorded_run import begin
from motet.config import RunChoice, experiment_from_dict, read_tables
from motet.config._values import from_plain, to_plain
from motet.deploy._runtime.agreement import Agreement
from motet.errors import CapabilityError, RequestError
from motet.methods import _catalog as catalog
from motet.optim import Optimizer, Sgd
from motet.privacy._accounting import ORDERS, Charge, epsilon
from motet.privacy._guarantees import OF_METHODS, NoPromise, Promise, table
from motet.privacy._ledger import guarantee_of, spending, training_plans
from motet.privacy._optimizer import Private
from motet.privacy._uploads import PrivateMean
from motet.task import Task

SIZES = {"a": 12, "b": 30}
PROMISING = [name for name, promise in OF_METHODS.items() if isinstance(promise, Promise)]


class Small(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.body, self.norm = nn.Linear(4, 6), norm or nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(self.body(x)).relu())


TASK = Task(Small)
DATA = arrays(SIZES)


def private(name, **fields):
    optimizer = fields.pop("optimizer", Private(batch_size=8))
    return catalog.method_class(name)(optimizer=optimizer, batch_size=8, **fields)


def test_epsilon_is_what_the_accountant_says():
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(ORDERS)
    step = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.1))
    accountant.compose(step, 300)
    accountant.compose(dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(1.1)), 7)
    ours = epsilon([Charge(0.05, 300), Charge(0.2, 7)], noise=1.1, delta=1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)


@pytest.mark.filterwarnings("ignore")  # of Opacus
@pytest.mark.parametrize(("rate", "steps", "noise"), [(0.02, 500, 1.0), (0.2, 40, 2.0)])
def test_epsilon_agrees_with_another_accountant(rate, steps, noise):
    from opacus.accountants import RDPAccountant

    theirs = RDPAccountant()
    theirs.history = [(noise, rate, steps)]
    ours = epsilon([Charge(rate, steps)], noise=noise, delta=1e-5)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=0.02)


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
def test_the_accountant_converges_without_complaint(rate, caplog):
    assert 0 < epsilon([Charge(rate, 60)], noise=1.0, delta=1e-5) < 100
    assert not caplog.records


def test_full_batches_are_the_gaussian_mechanism_without_amplification():
    assert epsilon([Charge(1.0, 5)], noise=4.0, delta=1e-5) > epsilon(
        [Charge(0.5, 5)], noise=4.0, delta=1e-5
    )


def test_clients_are_charged_for_the_rounds_they_took_part_in():
    run = motet.run(private("fedavg"), TASK, DATA, rounds=4, cohort=1, seed=1)
    rounds = {client: int(n) for client, n in run.extras["privacy"].items()}
    assert sum(rounds.values()) == 4
    spent = spending(run)
    assert spent["delta"] == 1e-5
    for client, part in rounds.items():
        size = SIZES[client]
        charge = Charge(8 / size, part * -(-size // 8))
        assert spent["epsilon"][client] == epsilon([charge], noise=1.0, delta=1e-5)


def test_two_phases_that_reach_the_upload_are_both_charged():
    run = motet.run(private("fedrep", head_epochs=2), TASK, DATA, rounds=1)
    charge = Charge(8 / 12, 2)
    both = epsilon([charge._replace(steps=4), charge], noise=1.0, delta=1e-5)
    assert spending(run)["epsilon"]["a"] == pytest.approx(both)


def test_what_stays_at_home_is_not_charged():
    ditto = motet.run(private("ditto", personal_epochs=3), TASK, DATA, rounds=1)
    fedavg = motet.run(private("fedavg"), TASK, DATA, rounds=1)
    local = motet.run(private("local"), TASK, DATA, rounds=1)
    assert spending(ditto)["epsilon"] == spending(fedavg)["epsilon"]
    assert spending(local)["epsilon"] == {"a": 0.0, "b": 0.0}


def test_a_run_without_noise_has_no_account():
    run = motet.run(motet.FedAvg(), TASK, DATA, rounds=1)
    assert spending(run) == {}
    assert run.extras == {}


@pytest.mark.parametrize(
    ("method", "because"),
    [
        (private("fedavg", optimizer=Private(batch_size=8, noise=0.0)), "noise=0"),
        (private("fedavg", optimizer=Private(batch_size=8, sampling="shuffle")), "fixed size"),
        (private("fedproto"), "prototypes"),
        (private("ifca"), "least loss"),
        (private("fedalt", personal_optimizer=Sgd()), "personal_optimizer"),
        (private("fedalt", replay=True), "share their batches"),
    ],
    ids=["no noise", "fixed batches", "fedproto", "ifca", "fedalt", "replay"],
)
def test_no_epsilon_where_the_guarantee_does_not_hold(method, because):
    run = motet.run(method, TASK, DATA, rounds=1)
    spent = spending(run)
    assert spent.keys() == {"protects"}
    assert because in spent["protects"]
    assert any("without a guarantee" in warning for warning in run.warnings)


def test_a_method_that_nobody_has_examined_promises_nothing():
    class Mine(motet.FedAvg):
        def client_update(self, down, client, data, task):
            return {k: data["train"].x.mean() + 0 * v for k, v in down.items()}, client

    guarantee = guarantee_of(Mine(optimizer=Private()))
    assert isinstance(guarantee, NoPromise)
    assert "have not been analysed" in guarantee.because


@pytest.mark.parametrize("name", [n for n, g in OF_METHODS.items() if not getattr(g, "runs", True)])
def test_what_cannot_train_with_noise_is_refused_before_round_1(name):
    with pytest.raises((CapabilityError, RequestError)):
        motet.run(private(name), TASK, DATA, rounds=0)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(6), nn.BatchNorm1d(6, track_running_stats=False)])
def test_batch_normalisation_is_refused(norm):
    with pytest.raises(CapabilityError, match="GroupNorm"):
        motet.run(private("fedavg"), Task(lambda: Small(norm)), DATA, rounds=0)


def test_another_batch_size_than_the_one_divided_by_is_refused():
    with pytest.raises(RequestError, match="make them equal"):
        motet.run(motet.FedAvg(optimizer=Private(batch_size=8)), TASK, DATA, rounds=0)


@pytest.mark.parametrize("name", PROMISING)
def test_every_method_that_promises_something_runs_alike_on_both_backends(name):
    runs = [
        motet.run(private(name), TASK, DATA, rounds=2, backend=backend, traced=False)
        for backend in ("serial", "vectorized")
    ]
    assert largest_gap(runs[0].server, runs[1].server) < 1e-5
    assert spending(runs[0]) == spending(runs[1])


@pytest.mark.parametrize("name", PROMISING)
def test_uploads_reach_the_data_through_gradients_alone(name):
    """With gradients clipped to nothing, other training data give the same uploads."""
    mute = Private(batch_size=8, clip=1e-12)
    other = arrays(SIZES, seed=1, splits=("train",))
    own = arrays(SIZES, splits=("train",))
    servers = [
        motet.run(private(name, optimizer=mute), TASK, data, rounds=2, backend="serial").server
        for data in (own, other)
    ]
    assert largest_gap(*servers) < 1e-6


def test_the_check_above_sees_data_that_leave_without_a_gradient():
    mute = Private(batch_size=8, clip=1e-12)
    servers = [
        motet.run(private("fedproto", optimizer=mute), TASK, arrays(SIZES, seed=s), rounds=1).server
        for s in (0, 1)
    ]
    assert largest_gap(*servers) > 1e-2


def test_every_method_of_the_catalog_is_in_the_table():
    assert OF_METHODS.keys() == set(catalog.method_names())


@pytest.mark.parametrize("name", PROMISING)
def test_the_table_knows_every_phase_and_every_optimizer(name):
    """A field or phase that is added later must be thought about here."""
    promise, kind = OF_METHODS[name], catalog.method_class(name)
    method = private(name, **({"head_epochs": 1} if name == "fedper" else {}))
    assert set(promise.phases) <= training_plans(method).keys()
    serving_or_server = {"server_optimizer", "adapt_optimizer", "prototype_optimizer"}
    optimizers = {f.name for f in dataclasses.fields(kind) if "Optimizer" in str(f.type)}
    stays_home = {"personal_optimizer"} if name == "ditto" else set()
    assert optimizers - serving_or_server - stays_home - {"optimizer"} == set(promise.noisy)


def test_the_guide_shows_the_table(request):
    guide = request.config.rootpath / "docs" / "guides" / "privacy.md"
    assert table() in guide.read_text(encoding="utf-8")


def test_a_config_can_hold_a_private_optimizer():
    optimizer = Private(inner=Sgd(lr=0.3), noise=2.0)
    written = to_plain(optimizer)
    assert written["kind"] == "private"
    assert from_plain(Optimizer, written, "optimizer") == optimizer


def test_a_comparison_reports_what_was_spent():
    methods = {"private": private("knn-per", features="head"), "open": motet.FedProx()}
    rows = {
        row.label: row.privacy for row in motet.compare(methods, TASK, DATA, rounds=2, seeds=1).rows
    }
    assert rows["open"] == {}
    alone = motet.run(private("fedavg"), TASK, DATA, rounds=2)
    assert rows["private"]["epsilon"] == spending(alone)["epsilon"]
    assert "datastore stays" in rows["private"]["protects"]


def test_fedfomo_says_that_validation_examples_are_not_protected():
    run = motet.run(private("fedfomo", epochs=1), TASK, DATA, rounds=1)
    assert "Validation examples are not protected" in spending(run)["protects"]


def test_a_resumed_run_goes_on_spending_where_it_stopped(tmp_path):
    method, settings = private("fedavg"), {"rounds": 3, "cohort": 1, "seed": 4}
    whole = motet.run(method, TASK, DATA, **settings)
    stopped = start(method, TASK, DATA, **settings)
    stopped.advance()
    stopped.advance()
    saved = Checkpoint(stopped, tmp_path)
    saved.save()
    saved.close()

    resumed = start(method, TASK, DATA, **settings)
    opened = Checkpoint(resumed, tmp_path)
    opened.restore()
    resumed.advance()
    opened.close()
    assert spending(resumed) == spending(whole)
    assert largest_gap(resumed.server, whole.server) == 0


CONFIG = """
[data]
name = "digits"
partition = {name = "iid", clients = 3}
[model]
name = "mlp"
[method]
name = "fedper"
epochs = 1
optimizer = {kind = "private", noise = 2.0, inner = {kind = "sgd", lr = 0.05}}
[run]
rounds = 1
"""


def test_a_run_directory_says_what_was_spent(tmp_path):
    (tmp_path / "e.toml").write_text(CONFIG)
    experiment = experiment_from_dict(read_tables(tmp_path / "e.toml"))
    session = begin(experiment, tmp_path / "run")
    list(session.rounds())
    session.conclude()
    session.directory.close()
    spent = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert spent == spending(session.run)
    assert len(spent["epsilon"]) == 3


def test_a_deployment_refuses_noise_that_the_server_could_take_off():
    for method in (private("fedavg"), motet.FedAvg(reduce=PrivateMean())):
        with pytest.raises(CapabilityError, match="protect no one"):
            Agreement(experiment="e", method=method, task=TASK, run=RunChoice(), sites=None)
