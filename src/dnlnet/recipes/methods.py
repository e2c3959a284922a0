"""Names of the paper's methods."""

from collections.abc import Mapping

# Names of the variants in the paper's tables; None is the network without a block.
METHODS: Mapping[str | None, str] = {
    None: "Baseline",
    "nl": "NL",
    "nl_pairwise": "NL_p",
    "nl_unary": "NL_u",
    "dnl_star": "DNL*",
    "dnl_dagger": "DNL†",
    "dnl": "DNL",
}
