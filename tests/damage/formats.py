"""Every kind of file that is read: small whole samples of it, how one is damaged, and what reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.damage import changes
from tilewright.runtime.language import open_codec

ROOT = Path(__file__).parents[2]
MOST = 1 << 26  # bytes that a copy may unpack to, and of the device's memory
REFUSED = "damaged copy"  # what a cache answers that makes the result again instead of an error
_NETWORKS = ROOT / "tests" / "data" / "networks"
_LAYER = {"conv1": {"gemm": (0, 2), "ternary": (1, 3)}, "fc": {"gemm": (0,)}}
_VTA = {"LOG_INP_WIDTH": 3, "LOG_WGT_WIDTH": 3, "LOG_ACC_WIDTH": 5, "LOG_BLOCK": 4, "LOG_BATCH": 0}
_VTA |= {f"LOG_{name}_BUFF_SIZE": log for name, log in (("UOP", 15), ("INP", 15), ("WGT", 18), ("ACC", 17))}
_SEARCHED = '{"block": [2, 4], "acc_bytes": [1024, 2048], "base": "tiny", "dram": {"latency": 30}}'


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of file: `make` gives whole ones, `damage` a copy by seed, `read` uses a path.

    `read` returns None for a file that it takes, or words for one that it passes over; errors are what it raises.
    `verb` are the arguments of a command that prints what a file says, if there is one.
    """

    suffix: str
    make: Callable[[], Sequence[bytes]]
    read: Callable[[Path], str | None]
    damage: Callable[[bytes, int], bytes] = changes.damage_bytes
    verb: Callable[[Path], Sequence[str | Path]] | None = None


def _saved(write: Callable[[Path], Any], suffix: str) -> bytes:
    """What `write` leaves in the file that it is given."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"sample{suffix}")
        write(path)
        return path.read_bytes()


def _tflite() -> list[bytes]:
    """Two networks of TFLite's converter, and random ones of every operator that the tests' maker has."""
    from tests.compiler.conftest import RandomNetwork

    with tempfile.TemporaryDirectory() as folder:
        made = [RandomNetwork(Path(folder), seed).save().read_bytes() for seed in range(4)]
    return [(_NETWORKS / f"{name}.tflite").read_bytes() for name in ("classifier", "images")] + made


def _onnx() -> list[bytes]:
    """The digits' network, a convolution and dense layers that quantised values run through, and one of integers."""
    from tests.compiler.conftest import QdqModel
    from tests.compiler.frontend.onnx.dialect import Dialect

    with tempfile.TemporaryDirectory() as folder:
        m = QdqModel(Path(folder))
        x = m.quantise(m.input("x", [1, 3, 8, 8]))
        w, scale = m.weights(4, 3, 3, 3)
        x = m.quantise(m.node("Relu", m.node("Conv", x, w, m.bias(scale), pads=[1, 1, 1, 1])))
        x = m.quantise(m.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
        x = m.quantise(m.node("Add", x, m.quantise(m.node("Sigmoid", x), 1 / 256, -128)))
        m.output(m.quantise(m.node("GlobalAveragePool", x)))
        small, dense = (
            m.save("a.onnx").read_bytes(),
            QdqModel(Path(folder)).dense(bias=np.array([1, 2, 3], np.int32), bias_scale=0.025),
        )
        whole = Dialect(Path(folder))
        weights = whole.const(whole.rng.integers(-9, 9, (4, 6)))
        whole.output(whole.shift(whole.node("MatMul", whole.shift(whole.input(1, 4)), weights)))
        files = [dense.read_bytes(), whole.save().read_bytes()]
    return [(ROOT / "examples" / "digits" / "digits.onnx").read_bytes(), small, *files]


def _network(path: Path) -> None:
    from tilewright.compiler.frontend import import_model

    import_model(path)


def _tw() -> list[bytes]:
    """Programs of every kind of step, the launches of one with certificates."""
    from tests.damage.programs import every_operator, two_launches
    from tilewright.cli.verify import verify_executable

    certified = two_launches()
    verify_executable(certified)
    return [made.to_bytes() for made in (certified, two_launches(), every_operator())]


def _program(path: Path) -> None:
    """Load, verify and run a program on ones."""
    from tilewright.cli.verify import verify_executable
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.loader import Loaded
    from tilewright.sim.model.device import ModelDevice

    executable = Executable.from_bytes(path.read_bytes(), path.name, most=MOST)
    verify_executable(executable)
    with Loaded(executable, ModelDevice(executable.cfg, capacity=MOST)) as loaded:
        loaded.run({t.name: np.ones(t.shape, t.dtype) for t in executable.inputs if t.nbytes <= MOST})


def _compiled(path: Path) -> str | None:
    from tilewright.compiler import cache

    return REFUSED if cache.read(path) is None else None


def _cases() -> list[bytes]:
    return [(ROOT / "tests" / "data" / "programs" / f"{name}.npz").read_bytes() for name in ("tiny_3", "narrow_6")]


def _case(path: Path) -> None:
    from tilewright.sim.replay import replay_case

    replay_case(path)


def _inputs(path: Path) -> None:
    from tilewright.hw.foreign import read_npz

    read_npz(path, MOST)


def _llama() -> list[bytes]:
    from tests.compiler.frontend.llama.conftest import llama_bytes

    return [llama_bytes(), llama_bytes(own_classifier=True, layers=1)]


def _integers() -> list[bytes]:
    from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
    from tilewright.compiler.frontend.llama.forms import FORMS, integers_of

    def write(path: Path, form: str) -> None:
        whole = path.with_name("small.bin")
        whole.write_bytes(_llama()[0])
        integers_of(read_checkpoint(whole), form=form).save(path)

    return [_saved(partial(write, form=form), ".npz") for form in FORMS]


def _ggufs() -> list[bytes]:
    from tests.compiler.frontend.llama import test_files as made

    one, other = made.weights(), made.weights(biases=True, own=True)
    return [
        _saved(lambda path: made.gguf_file(path, one, words=made.PIECES), ".gguf"),
        _saved(lambda path: made.gguf_file(path, other, "qwen2", "Q8_0", words=made.PIECES), ".gguf"),
    ]


def _gguf(path: Path) -> None:
    from tests.compiler.frontend.llama.test_files import PIECES
    from tilewright.hw.errors import InputError

    _checkpoint(path)
    found = open_codec(path, None, len(PIECES))
    with contextlib.suppress(InputError):  # of words that the damaged pieces do not spell
        found.decode(found.encode("abab", special=True))


def _checkpoint(path: Path) -> None:
    from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint

    read_checkpoint(path)


def _parts(name: str) -> bytes:
    """A file of the folder of a Llama."""
    from tests.compiler.frontend.llama.test_files import folder, weights

    with tempfile.TemporaryDirectory() as made:
        return (folder(Path(made, "m"), weights()) / name).read_bytes()


def _in_folder(name: str, path: Path) -> None:
    """Read the Llama of a folder, in which the file `name` is that at `path`."""
    with tempfile.TemporaryDirectory() as made:
        for each in ("config.json", "model.safetensors"):
            Path(made, each).write_bytes(path.read_bytes() if each == name else _parts(each))
        _checkpoint(Path(made))


def _vocabulary() -> list[bytes]:
    from tests.runtime.test_vocabulary import BYTES, trained

    return [trained(BYTES(False), size=300).to_str().encode()]


def _codec(path: Path) -> None:
    found = open_codec("m.npz", path, 300)
    found.decode(found.encode("abab", special=True))


def _pieces() -> list[bytes]:
    from tests.runtime.test_language import tokenizer_bytes

    _writer()  # once, before there are processes that print
    return [tokenizer_bytes()]


def _tokenizer(path: Path) -> None:
    from tests.runtime.test_language import PIECES
    from tilewright.hw.errors import InputError
    from tilewright.runtime.language import Tokenizer

    found = Tokenizer(path, len(PIECES))
    with contextlib.suppress(InputError):  # of words that the damaged pieces do not spell
        found.decode(found.encode("abab é"))


def _configs() -> list[bytes]:
    import json

    from tilewright.hw.config import PRESETS

    presets = [PRESETS[name].to_dict() for name in ("tiny", "pynq_z1_plus", "pynq_z1_two")]
    return [json.dumps(fields).encode() for fields in (*presets, _VTA)]


def _config(path: Path) -> None:
    from tilewright.hw.config import load_config

    load_config(str(path))


def _vta_string(path: Path) -> None:
    from tilewright.hw.config import load_config

    load_config(path.read_bytes().decode(errors="replace"))


def _memories() -> list[bytes]:
    import json

    from tilewright.sim.dram import PRESETS

    return [json.dumps(dataclasses.asdict(PRESETS["zynq_hp4"])).encode()]


def _memory(path: Path) -> None:
    from tilewright.sim.dram import load_dram

    load_dram(str(path))


def _mappings() -> list[bytes]:
    from tilewright.compiler.mapping import ChannelMapping, write_mapping

    return [_saved(partial(write_mapping, ChannelMapping(_LAYER)), ".json")]


def _mapping(path: Path) -> None:
    from tilewright.compiler.mapping import read_mapping

    read_mapping(path)


def _reports() -> list[bytes]:
    from tests.cli.page.conftest import PROGRAM
    from tilewright.cli.page import report

    def write(path: Path) -> None:
        source = path.with_suffix(".py")
        source.write_text(PROGRAM)
        report(f"{source}:tiles", "tiny").save(path)

    return [_saved(write, ".json")]


def _report(path: Path) -> None:
    from tilewright.cli.page.difference import between, read

    found = read(path)
    between(found, found, str(path))


def _tiles() -> list[bytes]:
    from tests.compiler.tune.test_search import HISTORY
    from tilewright.compiler.jobs import Store
    from tilewright.hw.config import PRESETS

    def write(path: Path) -> None:
        with Store(path) as store:
            for k, each in enumerate(HISTORY):
                store.put(str(k), {"value": each, "error": ""}, f"tile {PRESETS['tiny'].fingerprint:016x}/layer")
            store.put("network n", {"tiles": {"layer": HISTORY[0]["decisions"]}})

    return [_saved(write, ".db")]


def _known(path: Path) -> None:
    from tilewright.compiler.tune.search import known_tiles
    from tilewright.hw.config import PRESETS

    known_tiles(path, PRESETS["tiny"])
    known_tiles(path, PRESETS["tiny"], "n")


def _tile() -> list[bytes]:
    import json

    from tilewright.compiler.tile import Tile

    return [json.dumps(dataclasses.asdict(Tile(ci=6))).encode()]


def _cached_tile(path: Path) -> str | None:
    from tilewright.compiler.tune import search

    return REFUSED if search._read(path) is None else None


def _space(path: Path) -> None:
    from tilewright.apps.explore.study import default_space, read_space
    from tilewright.hw.config import PRESETS
    from tilewright.sim.dram import ZYNQ_HP

    found = read_space(path, PRESETS["tiny"], ZYNQ_HP)
    assert found.size > 0 and default_space(found.base, found.dram).size > 0


def _question() -> Any:
    from tilewright.apps.explore.study import Question, Space
    from tilewright.hw.config import PRESETS
    from tilewright.sim.dram import ZYNQ_HP

    return Question((), Space(PRESETS["tiny"], ZYNQ_HP, {"acc_bytes": (1024, 2048), "ppu_lanes": (3, 4)}))


def _studies() -> list[bytes]:
    """A study of points that are no configurations, which need no networks, and of others with made figures."""
    from tilewright.apps.explore import study

    def write(path: Path) -> None:
        found = study.Explorer(_question(), f"sqlite:///{path}", "one")
        figures = {"latency_us": 1.0, "bram": 2, "dsp": 3}
        with contextlib.ExitStack() as stack:
            before = study.evaluate
            stack.callback(setattr, study, "evaluate", before)
            study.evaluate = lambda job: figures
            found.explore(6)

    return [_saved(write, ".db")]


def _study(path: Path) -> None:
    from tilewright.apps.explore import study

    study.Explorer(_question(), f"sqlite:///{path}", "one").explore(6)


def _delegates() -> list[bytes]:
    from tilewright.apps.delegate.delegate import TilewrightDelegate

    def write(path: Path) -> None:
        TilewrightDelegate(_NETWORKS / "images.tflite", "tiny").save(path)

    return [_saved(write, ".zip")]


def _stored(path: Path) -> None:
    import hashlib

    from tilewright.apps.delegate import kernel

    kernel.load(path, hashlib.sha256((_NETWORKS / "images.tflite").read_bytes()).hexdigest())


def _records() -> list[bytes]:
    import hashlib
    import json

    return [json.dumps({"model.c": hashlib.sha256(b"text").hexdigest()}).encode()]


def _record(path: Path) -> None:
    from tilewright.runtime.c import folder

    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "model.c").write_bytes(b"text")
        (Path(place) / folder.RECORD).write_bytes(path.read_bytes())
        folder.check_folder(place)


def _assigned(path: Path) -> Sequence[str | Path]:
    return "assign", path, "--config", "tiny"


def _written(path: Path) -> Sequence[str | Path]:
    """A text of a model with random weights, at random: any piece of the vocabulary may be in it."""
    model = path.with_name("small.tw")
    model.write_bytes(_writer())
    return "generate", model, "--tokenizer", path, "--tokens", "12", "--temperature", "9"


@cache
def _writer() -> bytes:
    from tests.compiler.frontend.llama.conftest import llama_bytes
    from tests.runtime.test_language import PIECES
    from tilewright.compiler.network import compile_model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "small.bin")
        path.write_bytes(llama_bytes(words=len(PIECES), context=12))
        return compile_model(path, "tiny").to_bytes()


def _json(make: Callable[[], Sequence[bytes]], read: Callable[[Path], str | None], *verb: str) -> Format:
    return Format(".json", make, read, changes.damage_json, (lambda path: (*verb, path)) if verb else None)


FORMATS = {
    "network .tflite": Format(".tflite", _tflite, _network, verb=_assigned),
    "network .onnx": Format(".onnx", _onnx, _network, changes.damage_onnx, _assigned),
    "llama2.c .bin": Format(".bin", _llama, _network),
    "llama .gguf": Format(".gguf", _ggufs, _gguf),
    "llama .safetensors": Format(
        ".safetensors", lambda: [_parts("model.safetensors")], partial(_in_folder, "model.safetensors")
    ),
    "llama config.json": _json(lambda: [_parts("config.json")], partial(_in_folder, "config.json")),
    "tokenizer.json": _json(_vocabulary, _codec),
    "quantised llama .npz": Format(".npz", _integers, _network, changes.damage_npz),
    "tokenizer .bin": Format(".bin", _pieces, _tokenizer, verb=_written),
    "program .tw": Format(".tw", _tw, _program, changes.damage_tw, lambda path: ("disasm", path)),
    "cached program .tw": Format(".tw", _tw, _compiled, changes.damage_tw),
    "delegate's programs": Format(".zip", _delegates, _stored, changes.damage_programs),
    "case .npz": Format(".npz", _cases, _case, changes.damage_npz, lambda path: ("replay", path)),
    "inputs .npz": Format(".npz", lambda: [(_NETWORKS / "images.npz").read_bytes()], _inputs, changes.damage_npz),
    "configuration .json": _json(_configs, _config, "config", "check"),
    "VTA's string": Format("", lambda: [b"1x16_i8w8a32_15_15_18_17"], _vta_string, changes.damage_text),
    "memory .json": _json(_memories, _memory),
    "mapping .json": _json(_mappings, _mapping),
    "report .json": _json(_reports, _report),
    "space .json": _json(lambda: [_SEARCHED.encode()], _space),
    "study .db": Format(".db", _studies, _study, changes.damage_db),
    "tiles .db": Format(".db", _tiles, _known, changes.damage_db),
    "cached tile .json": _json(_tile, _cached_tile),
    "record of generated C": _json(_records, _record),
}
