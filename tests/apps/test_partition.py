"""apps/partition.py: groups that run one after the other, and groups that fall away."""

import pytest

from tilewright.apps.partition import grouped, partition

CHAIN = {"a": [], "b": ["a"], "c": ["b"], "d": ["a"], "e": ["c", "d"]}


def needs(node, taken):
    return CHAIN[node]


@pytest.mark.parametrize(
    ("taken", "first", "expected"),
    [
        ("abcde", None, [(True, "abcde")]),
        ("", None, [(False, "abcde")]),
        ("bd", None, [(False, "a"), (True, "bd"), (False, "ce")]),
        ("ae", None, [(True, "a"), (False, "bdc"), (True, "e")]),
        ("ae", False, [(False, ""), (True, "a"), (False, "bdc"), (True, "e")]),
        ("bd", True, [(True, ""), (False, "a"), (True, "bd"), (False, "ce")]),
    ],
)
def test_groups_take_turns_and_each_has_all_that_is_ready(taken, first, expected):
    found = grouped(CHAIN, needs, taken, first)
    assert [(kind, sorted(group)) for kind, group in found] == [(kind, sorted(group)) for kind, group in expected]


def test_the_order_of_the_nodes_need_not_be_that_of_their_data():
    assert grouped("edcba", needs, "abcd") == [(True, ["a", "d", "b", "c"]), (False, ["e"])]


def test_what_is_never_ready_is_in_no_group():
    reads = {"a": [None], "b": [], "c": ["a"]}
    assert grouped("abc", lambda node, _: reads[node], "ab") == [(True, ["b"])]
    assert grouped("ac", lambda node, _: reads[node], "a") == []


def test_what_a_node_reads_may_depend_on_whether_it_is_taken():
    assert grouped("abc", lambda node, taken: [] if taken else CHAIN[node], "c") == [(False, ["a", "b"]), (True, ["c"])]
    assert grouped("abc", lambda node, taken: [] if taken else CHAIN[node], "c", True)[0] == (True, ["c"])


def test_a_group_that_is_refused_stays_and_changes_the_others():
    """Groups of one node are refused."""
    told = []

    def compiled(groups):
        found: dict[int, list[str]] = {k: group for k, (taken, group) in enumerate(groups) if taken}
        return {k: part if len(part) > 1 else f"{part[0]} is alone" for k, part in found.items()}

    groups, parts = partition("abcde", needs, "bde", compiled, lambda group, why: told.append((group, why)))
    assert told == [(["e"], "e is alone")] and parts == {1: ["b", "d"]} and groups[-1] == (False, ["c", "e"])
    assert partition("abc", needs, "c", compiled, lambda *_: None) == ([(False, ["a", "b", "c"])], {})
