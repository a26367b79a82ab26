"""The verdict on each site: whether a method helps it, compared with a reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from motet._verdict.judging import Judgement
from motet._verdict.site_gains import SiteGain, SiteState, State

SMALL = 20  # test examples: with fewer, one example is worth more than 5 points


@dataclass(frozen=True, kw_only=True)
class SiteVerdict:
    """Whether a method helps one site, compared with a reference.

    Attributes:
        gain: Gain over the site's test examples and the seeds; positive is better for every metric.
        low: Lower end of its 95% interval; NaN with fewer than two examples.
        high: Upper end.
        p_value: Chance of a gain this large, in either direction, if there were none; before the
            correction for the number of sites.
        state: "helped", "harmed", "no difference" (larger than `margin`) or "cannot tell", with
            other examples and other seeds. With one seed always "cannot tell".
        sure: Whether the state is sure; if not, it is probable.
        in_runs: The state in these very runs, whatever other seeds may do.
        examples: Test examples of the site.
        margin: A gain smaller than this does not matter.
        small: Whether the site has too few test examples to weigh much.
    """

    site: str
    label: str
    reference: str
    gain: float
    low: float
    high: float
    p_value: float
    state: State
    sure: bool
    in_runs: State
    examples: int
    margin: float
    small: bool

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)


def site_verdicts(
    pair: tuple[str, str],
    gains: Mapping[str, float],
    found: Judgement,
    *,
    examples: Mapping[str, int],
    margin: float,
    most: float,
) -> Iterator[SiteVerdict]:
    """Yield the verdict on each site of a pair of methods.

    Args:
        pair: A method and its reference.
        gains: The sites' gains, in the order of the judgement. They are known where a test is not
            possible, because the metric is undefined without some of the examples.
        found: The judgement.
        examples: Test examples of each site; tests may have put them together in blocks.
        margin: A gain smaller than this does not matter.
        most: The largest gain that the metric allows, at which intervals end.
    """
    parts = zip(gains.items(), found.sites, found.states, found.states_in_runs, strict=False)
    for (client, gain), tested, state, in_runs in parts:
        count = examples.get(client, tested.examples)
        # The order of the arguments keeps NaN, which says that there is no interval.
        low, high = (min(max(end, -most), most) for end in (tested.low, tested.high))
        shown = replace(tested, mean=gain, low=low, high=high, examples=count)
        yield _verdict(client, pair, shown, (state, in_runs), margin)


def _verdict(
    client: str,
    pair: tuple[str, str],
    gain: SiteGain,
    states: tuple[SiteState, SiteState],
    margin: float,
) -> SiteVerdict:
    state, in_runs = states
    return SiteVerdict(
        site=client,
        label=pair[0],
        reference=pair[1],
        gain=gain.mean,
        low=gain.low,
        high=gain.high,
        p_value=gain.p_value,
        state=state.state,
        sure=state.sure,
        in_runs=in_runs.state,
        examples=gain.examples,
        margin=margin,
        small=gain.examples < SMALL,
    )


def counted(sites: Sequence[SiteVerdict], *, in_runs: bool) -> dict[State, int]:
    """Count the sites by state."""
    states: tuple[State, ...] = ("helped", "harmed", "no difference", "cannot tell")
    found = [site.in_runs if in_runs else site.state for site in sites]
    return {state: found.count(state) for state in states}
