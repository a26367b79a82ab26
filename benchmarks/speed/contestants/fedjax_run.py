"""FedJAX's federated averaging, and a scan over steps written by hand in JAX."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import shared

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def mlp(p, x):
    return linear(p, "2", jax.nn.relu(linear(p, "0", x)))


def cnn(p, x):
    for name in ("0", "3"):
        x = jax.lax.conv_general_dilated(
            x, p[f"{name}.weight"], (1, 1), [(2, 2), (2, 2)],
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        ) + p[f"{name}.bias"][None, :, None, None]  # fmt: skip
        x = jax.lax.reduce_window(
            jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        )
    x = x.reshape(x.shape[0], -1)
    return linear(p, "9", jax.nn.relu(linear(p, "7", x)))


def lstm(p, x):
    h = p["embedding.weight"][x].swapaxes(0, 1)  # [time, batch, 8]
    for layer in (0, 1):
        names = [
            f"lstm.{kind}_l{layer}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        w_in, w_rec, b_in, b_rec = (p[name] for name in names)
        sums = h @ w_in.T + b_in + b_rec

        def cell(state, step, w_rec=w_rec):
            hidden, memory = state
            i, f, g, o = jnp.split(step + hidden @ w_rec.T, 4, axis=-1)
            memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
            return (hidden, memory), hidden

        zeros = jnp.zeros((h.shape[1], w_rec.shape[1]))
        _, h = jax.lax.scan(cell, (zeros, zeros), sums)
    return linear(p, "head", h.swapaxes(0, 1))


APPLY = {"mlp": mlp, "cnn": cnn, "lstm": lstm}


def example_loss(network):
    def loss(params, batch, _rng=None):
        scores = jax.nn.log_softmax(APPLY[network](params, batch["x"]))
        losses = -jnp.take_along_axis(scores, batch["y"][..., None], -1)[..., 0]
        return losses.reshape(losses.shape[0], -1).mean(-1)

    return loss


def fedjax_rounds(workload, params):
    import fedjax

    about = workload.about
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.grad(example_loss(about["network"])),
        fedjax.optimizers.sgd(about["rate"]),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=about["batch"], num_epochs=1, skip_shuffle=True
        ),
    )
    state = algorithm.init(params)
    for number in range(about["rounds"]):
        clients = []
        for place, client in enumerate(workload.cohorts[number]):
            rows = workload.order(number, place)
            examples = {"x": workload.x[rows], "y": workload.y[rows].astype(np.int32)}
            data = fedjax.ClientDataset(examples)
            clients.append((str(client).encode(), data, jax.random.PRNGKey(0)))
        started = time.perf_counter()
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        yield time.perf_counter() - started, state.params


def scan_rounds(workload, params):
    """Steps of a client in one compiled scan, padded to the longest client."""
    about = workload.about
    loss = example_loss(about["network"])

    def mean(p, batch):
        losses = loss(p, batch)
        return (losses * batch["w"]).sum() / jnp.maximum(batch["w"].sum(), 1)

    @jax.jit
    def local(p, x, y, index, weight):
        def step(p, at):
            index, weight = at
            batch = {"x": x[index], "y": y[index], "w": weight}
            slope = jax.grad(mean)(p, batch)
            return jax.tree_util.tree_map(lambda a, b: a - about["rate"] * b, p, slope), None

        return jax.lax.scan(step, p, (index, weight))[0]

    @jax.jit
    def add(total, p, weight):
        return jax.tree_util.tree_map(lambda t, leaf: t + weight * leaf, total, p)

    batch, longest = about["batch"], about["high"]
    steps = -(-longest // batch)
    for number in range(about["rounds"]):
        started = time.perf_counter()
        total, weight = jax.tree_util.tree_map(jnp.zeros_like, params), 0
        for place in range(about["cohort"]):
            rows = workload.order(number, place)
            x = np.zeros((longest, *workload.x.shape[1:]), workload.x.dtype)
            y = np.zeros((longest, *workload.y.shape[1:]), np.int32)
            x[: len(rows)], y[: len(rows)] = workload.x[rows], workload.y[rows]
            index = np.arange(steps * batch) % longest
            real = (np.arange(steps * batch) < len(rows)).astype(np.float32)
            shape = (steps, batch)
            trained = local(params, x, y, index.reshape(shape), real.reshape(shape))
            total, weight = add(total, trained, float(len(rows))), weight + len(rows)
        params = jax.tree_util.tree_map(lambda leaf, n=weight: leaf / n, total)
        jax.block_until_ready(params)
        yield time.perf_counter() - started, params


def main() -> None:
    memory = shared.Memory()
    workload, out, options = shared.arguments()
    params = {name: jnp.asarray(value) for name, value in workload.initial.items()}
    play = {"fedjax": fedjax_rounds, "scan": scan_rounds}[options["how"]]
    seconds = []
    for spent, latest in play(workload, params):
        seconds.append(spent)
        params = latest
    shared.report(out, workload, seconds, {k: np.asarray(v) for k, v in params.items()}, memory)


main()
