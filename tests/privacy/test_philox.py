import numpy as np
import torch
from scipy import stats
from torch.func import vmap

from motet.privacy._philox import normal, philox

KNOWN = [  # (counter, key, result), from the Random123 distribution
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_philox_gives_the_published_answers():
    for counter, key, expected in KNOWN:
        words = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
        assert [int(word) for word in words] == expected


def test_the_noise_is_standard_normal():
    drawn = normal(torch.tensor(7), 1, torch.Size([40_001])).numpy()
    assert abs(drawn.mean()) < 4 / np.sqrt(len(drawn))
    assert abs(drawn.std() - 1) < 4 / np.sqrt(2 * len(drawn))
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert np.isfinite(drawn).all()


def test_keys_and_streams_have_noise_of_their_own():
    size = torch.Size([4_000])
    high = 1 << 40  # a key differs also in its upper half
    drawn = [normal(torch.tensor(k), s, size) for k, s in [(1, 1), (2, 1), (1 + high, 1), (1, 2)]]
    off_diagonal = torch.corrcoef(torch.stack(drawn)) - torch.eye(4, dtype=torch.float64)
    assert off_diagonal.abs().max() < 0.08


def test_a_stack_of_keys_draws_what_each_of_them_draws():
    keys = torch.tensor([3, 1 << 50, 12345])
    stacked = vmap(lambda key: normal(key, 1, torch.Size([5, 3])))(keys)
    for row, key in zip(stacked, keys, strict=True):
        torch.testing.assert_close(row, normal(key, 1, torch.Size([5, 3])), rtol=0, atol=1e-15)
