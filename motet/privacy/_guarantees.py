"""What noisy local training guarantees, method by method.

The guarantee is about what leaves a client. It holds if raw examples reach the upload through noisy
gradients alone: also a part that stays at home must be trained with noise if the gradients of what
leaves are taken at it.
"""

from __future__ import annotations

from dataclasses import dataclass

BY_PART = "it steps parts of a model by an optimizer each, and noise is for all of a gradient"
MODEL = "the trained model"
BASE = "the shared part; the personal part stays, and is trained with the same noise"
OWN = "the client's own model"


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Raw training examples reach the upload through noisy gradients alone.

    Attributes:
        leaves: What leaves a client, for people.
        phases: Phases of local training whose steps reach the upload: these are charged.
        noisy: Optimizers of the method that have to be None, so that `optimizer` does their work.
        but: What is not protected.

    Example:
        >>> import motet
        >>> motet.privacy.guarantee_of(motet.FedPer(optimizer=motet.Private())).phases
        ('head', 'train')
    """

    leaves: str = MODEL
    phases: tuple[str, ...] = ("train",)
    noisy: tuple[str, ...] = ()
    but: str = ""


@dataclass(frozen=True)
class NoPromise:
    """There is another way from raw examples to the upload.

    Attributes:
        because: Which, as the rest of a sentence.
        runs: Whether the method can train with noise at all.

    Example:
        >>> import motet
        >>> motet.privacy.guarantee_of(motet.FedAvgShared(optimizer=motet.Private()))
        NoPromise(because='it sends examples themselves to other clients', runs=True)
    """

    because: str
    runs: bool = True


Guarantee = Promise | NoPromise

OF_METHODS: dict[str, Guarantee] = {
    "local": Promise(leaves="nothing", phases=()),
    "fedavg": Promise(),
    "fedavg-ft": Promise(),
    "fedavg-shared": NoPromise("it sends examples themselves to other clients"),
    "fedper": Promise(leaves=BASE, phases=("head", "train")),
    "fedfomo": Promise(
        leaves="the trained model, which the server hands to other clients as it is, and weights",
        but="Validation examples are not protected: they weigh the models, and weights leave.",
    ),
    "knn-per": Promise(leaves="the trained model; the datastore stays"),
    "fedalt": Promise(leaves=BASE, phases=("personal", "shared"), noisy=("personal_optimizer",)),
    "fedsim": Promise(leaves=BASE, noisy=("personal_optimizer",)),
    "flow": NoPromise(BY_PART, runs=False),
    "dynamic-routing": Promise(leaves="two trained models and the routing policy"),
    "fedprox": Promise(),
    "scaffold": NoPromise(
        "its control variates are gradients without noise (option I), or need the steps of plain "
        "SGD (option II)",
        runs=False,
    ),
    "feddyn": Promise(),
    "moon": Promise(),
    "fedavgm": Promise(),
    "fedadagrad": Promise(),
    "fedadam": Promise(),
    "fedyogi": Promise(),
    "lg-fedavg": Promise(leaves=BASE),
    "fedrep": Promise(leaves=BASE, phases=("head", "body")),
    "fedbabu": Promise(leaves="the body; the head is never trained before a client is served"),
    "fedbn": Promise(leaves=BASE),
    "fedrecon": Promise(leaves=BASE, phases=("support", "query"), noisy=("recon_optimizer",)),
    "fedrod": NoPromise(BY_PART, runs=False),
    "residual": Promise(leaves=BASE, phases=("personal", "shared"), noisy=("personal_optimizer",)),
    "fedala": NoPromise("it learns without noise how to mix the model that it trains on"),
    "ditto": Promise(leaves="the trained global model; the personal one stays, and is not charged"),
    "mr-mtl": Promise(leaves=OWN, noisy=("personal_optimizer",)),
    "l2gd": NoPromise("its analysis needs the steps of plain SGD", runs=False),
    "apfl": NoPromise(BY_PART, runs=False),
    "pfedme": NoPromise("its inner problem is about a batch, not about single examples"),
    "per-fedavg": NoPromise("its meta-gradient needs several examples at once", runs=False),
    "cfl": Promise(),
    "ifca": NoPromise("it uploads which model has the least loss on the raw examples"),
    "fedem": NoPromise("it weighs examples by their losses, without noise"),
    "mocha": NoPromise("it solves for its model without gradients that could get noise"),
    "mocha-deep": Promise(leaves=OWN),
    "fedamp": Promise(leaves=OWN, noisy=("personal_optimizer",)),
    "heur-fedamp": Promise(leaves=OWN, noisy=("personal_optimizer",)),
    "fedproto": NoPromise("its prototypes are means of raw representations"),
    "pfedhn": Promise(),
}


def table() -> str:
    """Write the guarantees down as a table in Markdown."""
    rows = [_row(name, guarantee) for name, guarantee in OF_METHODS.items()]
    return "\n".join(["| method | what leaves a client | guarantee |", "|---|---|---|", *rows])


def _row(name: str, guarantee: Guarantee) -> str:
    if isinstance(guarantee, NoPromise):
        word = "none" if guarantee.runs else "refused"
        return f"| {name} |  | {word}: {guarantee.because} |"
    if not guarantee.phases:
        return f"| {name} | {guarantee.leaves} | nothing is charged |"
    fields = "".join(f", with `{field}=None`" for field in guarantee.noisy)
    but = f". {guarantee.but}" if guarantee.but else ""
    return f"| {name} | {guarantee.leaves} | each training example{fields}{but} |"
