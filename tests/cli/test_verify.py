"""cli/verify.py."""

import json


def test_a_proved_program(tilewright, double_tw):
    done = tilewright("verify", double_tw)
    assert done.status == 0
    proved = "no deadlock, no race, nothing read before it is written"
    assert done.out.splitlines()[-1] == f"{double_tw}: 1 launch, {proved}; 1 certificate checked"


def test_json_counts_token_pairs(tilewright, double_tw):
    (launch,) = json.loads(tilewright("verify", double_tw, "--json").out)["launches"]
    assert launch["step"] == "double"
    assert launch["token_pairs"] >= 2
    assert 0 <= launch["implied"] <= launch["token_pairs"]
    assert launch["most_in_flight"] >= 1
