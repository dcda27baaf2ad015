"""cli/page/difference.py: reports that were read, files that are none, what changed."""

import json

import pytest

from tilewright.cli.page.difference import FIELDS, between, check, read
from tilewright.hw.errors import FileError


def test_a_report_is_one_after_a_round_trip(recorded, tmp_path):
    recorded.save(tmp_path / "a.json")
    assert read(tmp_path / "a.json") == json.loads(recorded.to_json())


def test_every_field_is_checked(data):
    assert data.keys() == FIELDS.keys()
    for key in FIELDS:
        with pytest.raises(FileError, match="is no report" if key == "report" else f"lacks '{key}'"):
            check({name: value for name, value in data.items() if name != key}, "a.json")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(report=2), "a.json: report is 2, must be one of 1"),
        (lambda d: d.update(summary={}), "summary is {}, must be a list of"),
        (lambda d: d["operators"][0].update(cycles=-1), r"operators\[0\]: cycles is -1, must be an integer from 0"),
        (lambda d: d["operators"][0].update(share=1.5), r"operators\[0\]: share is 1.5, must be a number from 0 to 1"),
        (lambda d: d["operators"][0].pop("kind"), r"operators\[0\]: lacks 'kind'"),
        (lambda d: d["summary"][0].update(value=float("nan")), "value is nan"),
        (lambda d: d["exactness"].update(equal="yes"), "exactness: equal is 'yes', must be true or false or null"),
    ],
)
def test_a_damaged_report_is_refused(data, change, text):
    change(data)
    with pytest.raises(FileError, match=text) as info:
        check(data, "a.json")
    assert len(str(info.value)) <= 300


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(report=0), "report is 0, must be one of 1"),
        (lambda d: d.pop("contract"), "lacks 'contract'"),
        (lambda d: d["operators"][0].pop("kind"), r"operators\[0\]: lacks 'kind'"),
    ],
)
def test_a_report_of_an_earlier_release_is_named(data, change, text):
    """Where it has all that is compared, it is taken."""
    data["tilewright"] = "0.0.7"
    assert check(data, "a.json")["tilewright"] == "0.0.7"
    change(data)
    told = f"^a.json: {text}; the report is of tilewright 0.0.7, this is [0-9.]+: make it again with this release, by"
    with pytest.raises(FileError, match=told):
        check(data, "a.json")


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"[1]", "is no report"), (b"{", "cannot be read as JSON")],
)
def test_other_files_are_refused(tmp_path, content, text):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileError, match=text):
        read(tmp_path / "a.json")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(FileError, match="is a folder; give what `tilewright report --json` printed"):
        read(tmp_path)


def test_what_changed_comes_first_where_it_changed_most(data):
    now = json.loads(json.dumps(data))
    first, second, *others = now["operators"]
    first["cycles"] += 7
    second["cycles"] += 70
    others[0]["operator"] = "new"
    now["config"]["queue_depth"] = 8
    found = between(data, now, "old/a.json")
    assert found["source"] == "a.json" and found["before"] == "tiles on tiny, timing"
    changed = {pair["operator"]: (pair["before"], pair["now"]) for pair in found["operators"]}
    assert changed["new"][0] is None and changed[second["operator"]][1] - changed[second["operator"]][0] == 70
    assert {"field": "queue_depth", "before": data["config"].get("queue_depth"), "now": 8} in found["config"]
    sizes = [abs((pair["now"] or 0) - (pair["before"] or 0)) for pair in found["operators"]]
    assert sizes == sorted(sizes, reverse=True)


def test_operators_of_one_name_are_one(data):
    now = json.loads(json.dumps(data))
    now["operators"].append(dict(max(now["operators"], key=lambda row: row["cycles"])))
    (pair,) = between(data, now, "a.json")["operators"]
    assert pair["now"] == 2 * pair["before"]
