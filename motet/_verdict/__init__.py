"""The verdict on a comparison: statistics, findings, and the sentences that report them."""
