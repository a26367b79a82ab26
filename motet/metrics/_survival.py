"""Metrics of survival curves under censoring, for many resamples at once.

Targets are (time, event): event is 1 where it happened at that time and 0 where the example was
last seen without it. Predictions are survival probabilities at the ends of the time bins; for the
C-index they may also be one number per example that is larger for a longer survival.
"""

from __future__ import annotations

import numpy as np

from motet.metrics._metric import Array, ratio

TINY = 1e-30  # a probability of 0 costs this much, not infinity
BLOCK = 512  # examples whose pairs are held at once


def c_index(t: Array, p: Array, w: Array) -> Array:
    """Harrell's C: share of comparable pairs in which the longer survivor is predicted so.

    A pair is comparable if the earlier of the two times is an event; at equal times, if one is an
    event and the other is not. Equal predictions count half.
    """
    time, event = t[:, 0].astype(float), t[:, 1] > 0
    longer = p if p.ndim == 1 else p.sum(1)
    good, pairs = np.zeros(len(w)), np.zeros(len(w))
    for start in range(0, len(t), BLOCK):
        mine = slice(start, start + BLOCK)
        later = (time[mine, None] < time) | ((time[mine, None] == time) & ~event)
        comparable = (event[mine, None] & later).astype(float)
        ahead = (longer[mine, None] < longer) + 0.5 * (longer[mine, None] == longer)
        pairs += (w[:, mine] * (w @ comparable.T)).sum(1)
        good += (w[:, mine] * (w @ (comparable * ahead).T)).sum(1)
    spoiled = ~np.isfinite(longer)
    return np.where((w[:, spoiled] > 0).any(1), np.nan, ratio(good, pairs))


def integrated_brier(times: tuple[float, ...], t: Array, p: Array, w: Array) -> Array:
    """Brier score of the survival curves, integrated over the follow-up and divided by its length.

    Censored examples count by inverse probability of censoring (Graf et al. 1999), estimated on
    the examples at hand. Only time bins that end before the last observed time are used.
    """
    time, event = t[:, 0].astype(float), t[:, 1] > 0
    grid, last = np.asarray(times, float), np.where(w > 0, time, -np.inf).max(1)
    censoring = _Censoring(time, event, w)
    at_own = censoring.at(time)  # [resamples, examples]
    scores = np.stack(
        [_brier_at(t_k, p[:, k], time, event, w, at_own, censoring) for k, t_k in enumerate(grid)],
        axis=1,
    )
    used = grid < last[:, None]  # [resamples, times]
    both = used[:, 1:] & used[:, :-1]
    widths = np.where(both, np.diff(grid), 0.0)
    heights = np.where(both, (scores[:, 1:] + scores[:, :-1]) / 2, 0.0)
    return ratio((widths * heights).sum(1), widths.sum(1))


def curve_losses(times: tuple[float, ...], t: Array, p: Array) -> Array:
    """Negative log-likelihood of each example under its survival curve."""
    grid, time, event = np.asarray(times, float), t[:, 0].astype(float), t[:, 1] > 0
    before = np.where(event, np.searchsorted(grid, time), np.searchsorted(grid, time, "right"))
    alive = np.concatenate([np.ones((len(p), 1)), p], axis=1)
    rows = np.arange(len(p))
    here, dies = alive[rows, before], event & (before < len(grid))
    after = alive[rows, np.minimum(before + 1, len(grid))]
    return np.asarray(-np.log(np.clip(np.where(dies, here - after, here), TINY, None)))


class _Censoring:
    """Kaplan-Meier estimate of staying uncensored, under every resample's weights."""

    def __init__(self, time: Array, event: Array, w: Array) -> None:
        self.times, place = np.unique(time, return_inverse=True)
        there = (place[:, None] == np.arange(len(self.times))).astype(float)
        leaving = w @ there
        censored = w @ (there * ~event[:, None])
        # At equal times events come first, so they are no longer at risk of being censored.
        at_risk = leaving[:, ::-1].cumsum(1)[:, ::-1] - (leaving - censored)
        kept = 1 - np.nan_to_num(ratio(censored, at_risk))
        self.curve = np.concatenate([np.ones((len(w), 1)), kept.cumprod(1)], axis=1)

    def at(self, when: Array) -> Array:
        """Return the probabilities at some times, [resamples, times]."""
        return self.curve[:, np.searchsorted(self.times, when, side="right")]


def _brier_at(
    when: float,
    alive: Array,
    time: Array,
    event: Array,
    w: Array,
    at_own: Array,
    censoring: _Censoring,
) -> Array:
    died, going_on = (time <= when) & event, time > when
    now = censoring.at(np.array([when]))
    lost = np.nan_to_num(ratio(w * died, at_own)) @ np.square(alive)
    right = ratio((w * going_on) @ np.square(1 - alive), now[:, 0])
    return np.asarray((lost + np.nan_to_num(right)) / w.sum(1))
