"""Which way to quantise is taken, and what an interrupted run leaves."""

import numpy as np
import pytest

from tilewright.apps.quantise.result import Comparison, OperatorLoss, Way
from tilewright.apps.quantise.samples import Input, Samples, samples_of
from tilewright.apps.quantise.search import Search, digest, split, working_folder
from tilewright.hw.errors import FileError, InputError, UnsupportedError

METHODS = ("minmax", "percentile")


class Candidates:
    """Networks whose figures are given by the texts of their ways; operator b has 1 % of the work of operator a."""

    forms = ("equalised", "corrected")

    def __init__(self, **figures):
        self.figures, self.made = figures, []

    def network(self, way, done):
        self.made.append(str(way))
        if isinstance(self.figures.get(str(way)), str):
            raise UnsupportedError(self.figures[str(way)])
        return str(way).encode() if str(way) in self.figures else None

    def compare(self, way, network, done):
        snr, right = self.figures[network.decode()]
        losses = (OperatorLoss("a", "Conv", snr, 9.0), OperatorLoss("b", "Softmax", snr, 8.0))
        return Comparison(snr, losses, int8_accuracy=right)

    def macs(self):
        return {"a": 100, "b": 1}


def searched(tmp_path, **figures):
    search = Search(Candidates(**figures), 30, 10, tmp_path)
    search.run(METHODS, (), True, "net")
    return search


@pytest.mark.parametrize(
    ("figures", "taken"),
    [
        ({"minmax": (30, None), "percentile": (29, None)}, "minmax"),
        ({"minmax": (30, 0.5), "percentile": (29, 0.9)}, "percentile"),  # 4 of 10 labels more
        ({"minmax": (30, 0.8), "percentile": (29, 0.9)}, "minmax"),  # one label of ten is chance
        ({"minmax": "no", "percentile": (29, None)}, "percentile"),
        ({"minmax": (30, None), "percentile": (29, None), "minmax + equalised": (30.1, None)}, "minmax"),
        ({"minmax": (30, None), "percentile": (29, None), "minmax + equalised": (31, None)}, "minmax + equalised"),
        ({"minmax": (20, None), "percentile": (9, None), "minmax + 1 in float": (22, None)}, "minmax + 1 in float"),
        ({"minmax": (20, None), "percentile": (9, None), "minmax + 1 in float": (20.9, None)}, "minmax"),
    ],
)
def test_the_most_accurate_way_is_taken(tmp_path, figures, taken):
    found = searched(tmp_path, **figures)
    assert str(found.best) == taken and found.network == taken.encode()
    assert found.best.kept == (("b",) if "float" in taken else ())  # a has most of the work


def test_a_search_without_any_way_says_why(tmp_path):
    with pytest.raises(UnsupportedError, match="net: too large; too small"):
        searched(tmp_path, minmax="too large", percentile="too small")


def test_an_interrupted_search_goes_on(tmp_path):
    folder, figures = tmp_path / "parts", {"minmax": (30, 0.5), "percentile": (31, 0.5)}
    first, second = Candidates(**figures), Candidates(**figures)

    def stop(steps=1, what="", total=None):
        if what == "percentile":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), working_folder(folder, "key") as work:
        Search(first, 30, 10, work, stop).run(METHODS, (), False, "net")
    with working_folder(folder, "key") as work:
        search = Search(second, 30, 10, work)
        search.run(METHODS, (), False, "net")
    assert (first.made, second.made) == (["minmax"], ["percentile"]) and not folder.exists()
    assert search.tried == {Way("minmax"): first.compare(None, b"minmax", None), search.best: search.tried[search.best]}
    assert search.best == Way("percentile")


def test_a_folder_is_for_one_key_and_goes_after_a_mistake(tmp_path):
    folder = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt), working_folder(folder, "key") as work:
        (work / "file").write_text("1")
        raise KeyboardInterrupt
    with pytest.raises(InputError, match="wrong"), working_folder(folder, "other") as work:
        assert not (work / "file").exists()
        raise InputError("wrong")
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(FileError, match="parts: is in the way"), working_folder(folder, "key"):
        pass


def test_every_fourth_sample_judges():
    assert split(Samples(9)) == ([0, 1, 2, 4, 5, 6, 8], [3, 7])
    assert split(Samples(7)) == (range(7), range(7))  # too few to leave some out


def test_the_digest_is_of_networks_samples_and_options():
    def of(model=b"m", value=0.0, labels=None, option=1):
        arrays = {"x": np.full((8, 1, 2), value, np.float32)} | ({} if labels is None else {"labels": labels})
        return digest(model, samples_of(arrays, [Input("x", (1, 2), np.dtype(np.float32))], "x.npz"), option)

    different = [of(), of(b"n"), of(value=1), of(labels=np.arange(8)), of(option=2)]
    assert len({*different}) == 5 and of() == of()
