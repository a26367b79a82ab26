"""Models of transformers and peft as they are, tiny and random: nothing is downloaded."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import motet
from motet import Key, Task
from motet._core import tree
from motet.data import from_arrays
from motet.errors import CapabilityError, RequestError
from motet.models import hugging_face, merge_lora, save_peft, with_lora

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
PAD, WORDS, LENGTH = 0, 20, 6


def bert(**changes):
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=LENGTH, num_labels=3, pad_token_id=PAD,
        **{"attention_probs_dropout_prob": 0.0, **changes},
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=8, n_layer=1, n_head=2, n_positions=LENGTH, pad_token_id=PAD,
        bos_token_id=1, eos_token_id=2, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def encoder():
    return bert().bert


def texts(rng, n, *, targets):
    x = rng.integers(1, WORDS, (n, LENGTH))
    for row, real in zip(x, rng.integers(2, LENGTH + 1, n), strict=True):
        row[real:] = PAD
    y = rng.integers(0, 3, n)
    if targets == "next":
        y = np.full_like(x, -1)
        y[:, :-1] = np.where(x[:, 1:] == PAD, -1, x[:, 1:])
    return x, y


def data(targets="class"):
    rng = Key(4).numpy()
    train = {f"u{i}": texts(rng, n, targets=targets) for i, n in enumerate((7, 5, 4))}
    return from_arrays(train, classes=WORDS if targets == "next" else 3)


def agree(method, task, federation):
    settings = {"rounds": 1, "seed": 1}
    serial = motet.run(method, task, federation, backend="serial", **settings)
    stacked = motet.run(method, task, federation, backend="vectorized", mode="stack", **settings)
    assert not stacked.backend.failures
    expected = dict(tree.flatten((serial.server, dict(serial.clients))))
    for path, leaf in tree.flatten((stacked.server, dict(stacked.clients))):
        torch.testing.assert_close(leaf, expected[path], rtol=1e-3, atol=1e-5)
    return serial


def test_bert_with_our_adapters_stacks_and_its_base_stays():
    build = with_lora(hugging_face(bert), ("query", "value"), rank=2, train="model.classifier")
    task = Task(build)
    before = task.frozen_hash
    run = agree(motet.FedSim(personal="lora_B", batch_size=4), task, data())
    assert run.setting.task.frozen_hash == before
    assert all("lora_A" in name or "classifier" in name for name in run.server)


def test_bert_with_a_peft_config_is_personal_by_role():
    config = peft.LoraConfig(
        r=2, target_modules=["query"], modules_to_save=["classifier"], lora_dropout=0.1
    )
    task = Task(hugging_face(lambda: peft.get_peft_model(bert(), config)))
    run = agree(motet.FedAlt(personal="lora_B", batch_size=4), task, data())
    assert all("lora_B" not in name for name in run.server)
    assert any("lora_A" in name for name in run.server)
    assert not any("base_layer" in name for name in run.server)


def test_gpt2_predicts_the_next_token_and_never_looks_ahead():
    task = Task(with_lora(hugging_face(gpt2), "c_attn", rank=2), loss="masked_cross_entropy")
    run = agree(motet.FedPer(personal="lora_B", batch_size=4), task, data("next"))
    state, x = task.init(Key(0)), torch.full((1, LENGTH), 3)
    later = x.clone()
    later[0, -1] = 4
    assert torch.equal(task.outputs(state, x)[:, :-1], task.outputs(state, later)[:, :-1])
    assert all("lora_A" in name for name in run.server)


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_padding_changes_no_output(pool):
    task = Task(hugging_face(encoder, pool=pool, classes=3))
    state = task.init(Key(0))
    short = torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[5, 6, 7, PAD, PAD]])
    torch.testing.assert_close(task.outputs(state, short), task.outputs(state, padded))


def test_functional_dropout_is_refused_with_the_setting_that_turns_it_off():
    task = Task(hugging_face(lambda: bert(attention_probs_dropout_prob=0.1)))
    with pytest.raises(CapabilityError, match="attention_probs_dropout_prob=0"):
        motet.run(motet.FedAvg(), task, data(), rounds=1)


def test_a_folder_of_peft_is_what_peft_loads(tmp_path):
    task = Task(with_lora(hugging_face(bert), "query", rank=2, alpha=3, train="model.classifier"))
    run = motet.run(motet.FedAvg(batch_size=4), task, data(), rounds=2, backend="serial")
    network = run.model("u0")
    save_peft(network, tmp_path / "u0", base="tiny")
    plain = bert()
    held = {n.removeprefix("model."): leaf for n, leaf in task.frozen.items()}
    plain.load_state_dict(held, strict=False)
    loaded = peft.PeftModel.from_pretrained(plain, tmp_path / "u0").eval()
    x = data().examples("u0", "train").x
    with torch.no_grad():
        theirs = loaded(input_ids=x, attention_mask=(x != PAD).long()).logits
        torch.testing.assert_close(theirs, network(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(merge_lora(network)(x), network(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": r".*\.(query|key)", "use_rslora": True},
        {"target_modules": ["query"], "bias": "all", "use_dora": True},
        {"target_modules": "all-linear", "modules_to_save": ["classifier"]},
        {"target_modules": ["word_embeddings", "value"], "rank_pattern": {"value": 3}},
    ],
)
def test_a_model_of_peft_is_saved_by_peft_and_loads_with_the_same_logits(options, tmp_path):
    config = peft.LoraConfig(r=2, lora_alpha=3, **options)
    task = Task(hugging_face(lambda: peft.get_peft_model(bert(), config)))
    assert not any("base_layer.weight" in name for name in task.names)
    settings = {"rounds": 1, "backend": "serial", "trial": False}
    run = motet.run(motet.FedAlt(personal="lora", batch_size=4), task, data(), **settings)
    network, x = run.model("u0"), data().examples("u0", "train").x
    save_peft(network, tmp_path)
    plain, start = bert(), "model.base_model.model."
    held = {n.removeprefix(start).replace(".base_layer", ""): v for n, v in task.frozen.items()}
    plain.load_state_dict(
        {n.replace(".original_module", ""): leaf for n, leaf in held.items()}, strict=False
    )
    loaded = peft.PeftModel.from_pretrained(plain, tmp_path).eval()
    with torch.no_grad():
        theirs = loaded(input_ids=x, attention_mask=(x != PAD).long()).logits
        torch.testing.assert_close(theirs, network(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(RequestError, match="merge_and_unload"):
        merge_lora(network)


def test_what_peft_cannot_hold_is_refused(tmp_path):
    exact = with_lora(hugging_face(bert), "query", rank=2, exact=True)()
    with pytest.raises(CapabilityError, match="merged weights"):
        save_peft(exact, tmp_path)
    pooled = with_lora(hugging_face(encoder, pool="mean", classes=3), "query", train="head")()
    with pytest.raises(CapabilityError, match="head of its own"):
        save_peft(pooled, tmp_path)
    with pytest.raises(RequestError, match="nothing to save"):
        save_peft(hugging_face(bert)(), tmp_path)


def test_wrong_requests_are_named():
    with pytest.raises(RequestError, match="pool="):
        hugging_face(bert, pool="max")
    with pytest.raises(RequestError, match="classes="):
        hugging_face(encoder, pool="mean")()
    with pytest.raises(RequestError, match="expects a text model"):
        hugging_face(lambda: nn.Linear(2, 2))()


SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 16, "vocab_size": WORDS, "num_labels": 3,
}  # fmt: skip
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": PAD}
STILL = {"attention_probs_dropout_prob": 0.0, "pad_token_id": PAD}
# A model, the layers to adapt, and what else is trained. Each is peculiar in one way.
PECULIAR = {
    "Albert": ({**STILL, "embedding_size": 8}, ("query", "value"), "classifier"),  # shared layers
    "DebertaV2": (  # reads every mask as flags
        {**STILL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        ("query_proj", "value_proj"),
        "classifier",
    ),
    "OPT": (  # counts positions by the mask
        {
            **ENDS,
            "ffn_dim": 16,
            "word_embed_proj_dim": 16,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        ("q_proj", "v_proj"),
        "score",
    ),
    "Mistral": ({**ENDS, "num_key_value_heads": 1}, ("q_proj", "down_proj"), "score"),
}


def peculiar(name):
    options, _, _ = PECULIAR[name]
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
    return getattr(transformers, f"{name}ForSequenceClassification")(config)


@pytest.mark.parametrize("name", list(PECULIAR))
def test_a_model_of_another_kind_trains_alike_merges_and_becomes_a_folder_of_peft(name, tmp_path):
    _, at, head = PECULIAR[name]
    network = hugging_face(lambda: peculiar(name))
    task = Task(with_lora(network, at, rank=2, alpha=3, train=f"model.{head}"))
    settings = {"rounds": 2, "seed": 1, "trial": False}
    method = motet.FedAlt(personal="lora_B", batch_size=4)
    serial = motet.run(method, task, data(), backend="serial", **settings)
    auto = motet.run(method, task, data(), measure=False, **settings)
    expected = dict(tree.flatten((serial.server, dict(serial.clients))))
    for path, leaf in tree.flatten((auto.server, dict(auto.clients))):
        torch.testing.assert_close(leaf, expected[path], rtol=1e-4, atol=1e-5)
    adapted, x = serial.model("u0"), data().examples("u0", "train").x
    save_peft(adapted, tmp_path)
    plain = peculiar(name)
    plain.load_state_dict(
        {n.removeprefix("model."): leaf for n, leaf in task.frozen.items()}, strict=False
    )
    loaded = peft.PeftModel.from_pretrained(plain, tmp_path).eval()
    with torch.no_grad():
        theirs = loaded(input_ids=x, attention_mask=(x != PAD).long()).logits
        torch.testing.assert_close(theirs, adapted(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(merge_lora(adapted)(x), adapted(x), rtol=1e-4, atol=1e-5)
        wider = torch.nn.functional.pad(x, (0, 3), value=PAD)
        torch.testing.assert_close(adapted(wider), adapted(x), rtol=1e-4, atol=1e-5)
