"""What a recorded failure is, by what its words say. The rest is listed, for a person to look at."""

import re

RULES = [
    (re.compile(r"model\b.*\b(does not exist|is not found)|model identifier is invalid|^model: ", re.I), {"provider.not_found"}),
    (re.compile(r"API key|x-api-key|unauthorized", re.I), {"provider.auth_failed"}),
    (re.compile(r"content management policy", re.I), {"provider.content_blocked"}),
]


def misclassified(failure):
    """Returns what a failure should be, where it is something else."""
    words = failure["message"].split(": ", 1)[-1]
    expected = next((codes for rule, codes in RULES if rule.search(words)), {failure["code"]})
    return None if failure["code"] in expected else expected
