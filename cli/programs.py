"""Opens the program of a verb: a `.tw` file, a network to compile, or Python source that makes one."""

from __future__ import annotations

import inspect
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..boards.zynq.board import BOARDS, load_board
from ..compiler.cost import memory_facts, on_memory
from ..compiler.frontend import import_model
from ..compiler.frontend.source import LLAMAS, kind_of, read_source
from ..compiler.graph import Graph
from ..compiler.target.variants import of_images
from ..hw.config import Config, load_config
from ..hw.errors import CapacityError, FileError, InputError, ScheduleError, TilewrightError, UnsupportedError
from ..runtime.executable import Executable
from ..runtime.files import check_writable
from ..runtime.program import Program
from ..sim.dram import Dram, load_dram
from .options import DEFAULT_CONFIG, NO_CHOICES, Choices

if TYPE_CHECKING:
    from ..compiler.target import Target

SOURCE_NAME = "tilewright_source"  # __name__ of Python source while it runs
_LATEST: dict[str, Any] = {}  # the Python source that ran last: what it defines, and by which key
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
NETWORKS = (".onnx", ".tflite", ".pt2", ".bin", ".npz", ".gguf")
_ADDRESSES = 1 << 32  # bytes that the accelerator reaches
MODEL_HELP = """MODEL is a quantised network (int8 .tflite, QDQ .onnx or PyTorch .pt2), a Llama (.gguf, llama2.c's
.bin or a Hugging Face folder) or its integers (.npz), or FILE.py:NAME: a TVM schedule, PrimFunc or IRModule, a
tilewright Program, Executable or Graph, or a function of the configuration that returns one of these."""


def open_program(source: str, config: str | Config | None, choices: Choices = NO_CHOICES) -> Executable:
    """The executable that `source` names, for the configuration `config` (default: a `.tw` file's own, or pynq_z1).

    A `.tw` file's program is the same for any memory. Raises as `compile_source`, and `FingerprintError` if a `.tw`
    file was made for another configuration than `config`.
    """
    if not source.endswith(".tw"):
        return compile_source(source, load_config(config or DEFAULT_CONFIG), choices)
    _only_network(source, choices)
    cfg = load_config(config) if config else None
    executable = Executable.load(source)
    executable.check_config(cfg, source)
    return executable.resident() if choices.resident else executable


def is_network(source: str) -> bool:
    """True if `source` is the file of a network, by its content or its name, or the folder of a Llama."""
    if source.endswith(NETWORKS):
        return True
    if source.endswith((".tw", ".py")) or not os.path.exists(source):
        return False
    return bool(kind_of(source))


def _only_network(source: str, choices: Choices) -> None:
    batch = str(choices.batch) if choices.batch > 1 else None
    given = {"--input-type": " ".join(f"{name}={kind}" for name, kind in (choices.input_types or {}).items())}
    given |= {"--shape": " ".join(choices.shapes or {})}
    given |= {"--context": None if choices.context is None else str(choices.context)}
    given |= {"--contract": choices.contract, "--tiles": choices.tiles, "--mapping": choices.mapping}
    for option, value in (given | {"--target": choices.target, "--batch": batch}).items():
        if value:
            raise UnsupportedError(f"{source}: {option} {value} is only for networks, {', '.join(NETWORKS)}; drop it")


def compile_source(source: str, cfg: Config, choices: Choices = NO_CHOICES) -> Executable:
    """Compile the network or Python source `source`; of Python source only a graph is compiled as `choices` say, but
    for its memory, and what stays on chip. Raises `ConfigError` for an unknown memory.
    """
    memory = None if choices.dram is None else load_dram(choices.dram)
    value = python_value(source, cfg, memory)
    if value is not None and (choices.input_types or choices.shapes):
        _only_network(source, choices)
    if (graph := graph_in(value)) is not None:
        from ..compiler.network import compile_graph
        from ..compiler.tune.search import known_tiles

        tiles = None if choices.tiles is None else known_tiles(choices.tiles, cfg)
        target = read_target(choices.target, cfg, memory)
        several = of_images(graph.under(choices.contract), choices.batch)
        facts: dict[str, Any] = {"mapping": choices.mapping, "dram": memory, "target": target}
        return compile_graph(several, cfg, tiles=tiles, **facts, resident=choices.resident)
    if not is_network(source):
        _only_network(source, choices)
    if value is not None:
        executable = executable_of(value, cfg)
        return executable.resident() if choices.resident else executable
    if source.endswith(".py"):
        raise UnsupportedError(f"{source}: name what to compile, as in {source}:schedule")
    from ..compiler.network import compile_model

    check_room(source, cfg, choices.context)
    given: dict[str, Any] = {"tiles": choices.tiles, "mapping": choices.mapping, "batch": choices.batch}
    given |= {"input_types": choices.input_types, "shapes": choices.shapes, "context": choices.context}
    given["resident"] = choices.resident
    target = read_target(choices.target, cfg, memory)
    executable = compile_model(source, cfg, choices.contract, **given, dram=memory, target=target)
    check_room(source, cfg, choices.context, wide=any(state.dtype == "int16" for state in executable.states))
    return executable


def check_room(source: str, cfg: Config, context: int | None = None, wide: bool = False) -> None:
    """Raise `CapacityError` for a Llama in float whose integers the memory of the board of `cfg` does not hold.

    Caches are counted as those of the static form, unless `wide` says, or biases in the file, that it gets the wide
    one. A configuration whose name begins as a board's is for that; of others all that the accelerator reaches is room.
    """
    if not os.path.exists(source) or kind_of(source) not in LLAMAS:
        return
    from ..compiler.frontend.llama.checkpoint import describe, device_bytes

    described = describe(read_source(source, context=context))
    sizes = described.sizes
    weights, caches = device_bytes(sizes, wide or described.biases)
    boards = [load_board(name) for name in BOARDS if cfg.name.startswith(name)]
    room, what = (boards[0].reachable, boards[0].name) if boards else (_ADDRESSES, "the accelerator")
    if weights + caches > room:
        parts = f"{weights >> 20:,} of weights, {caches >> 20:,} of caches for {sizes.context:,} tokens"
        raise CapacityError(
            f"{source}: needs {weights + caches >> 20:,} MiB in integers ({parts}), {what} has {room >> 20:,}; "
            "take a smaller model, or a shorter --context"
        )


def graph_in(value: Any) -> Graph | None:
    """`value` where it is a graph, which Python source may make; only then is the compiler there."""
    module = sys.modules.get("tilewright.compiler.graph")
    return value if module is not None and isinstance(value, module.Graph) else None


def read_graph(source: str, cfg: Config, choices: Choices = NO_CHOICES) -> Graph:
    """The graph of a network: a file, or FILE.py:NAME, under the contract of `choices`, its inputs of their types.

    Raises `UnsupportedError` for Python source of another kind.
    """
    value = python_value(source, cfg)
    if value is None:
        types, shapes = choices.input_types, choices.shapes
        check_room(source, cfg)
        return import_model(read_source(source, types, shapes) if types or shapes else source, choices.contract)
    if choices.input_types or choices.shapes:
        _only_network(source, choices)
    if (graph := graph_in(value)) is None:
        known = ", ".join(NETWORKS)
        raise UnsupportedError(f"{source}: is {type(value).__name__}; must be a network, {known}, or a Graph of Python")
    return graph.under(choices.contract)


def read_target(source: str | None, cfg: Config, dram: Dram | None = None) -> Target | None:
    """The target that FILE.py:NAME names, as `compiler.user_kernels.target_of` reads it; None without a source."""
    if source is None:
        return None
    value = python_value(source, cfg, dram)
    if value is None:
        raise InputError(f"--target {source}: must be FILE.py:NAME, kernels of tw.kernel or modules in a Python file")
    from ..compiler.user_kernels import target_of

    return target_of(value, cfg, source)


def check_output(path: str, suffixes: tuple[str, ...], sources: dict[str, str | None]) -> None:
    """Raise `FileError` if `path` must not be written; called before the work, so that none is lost.

    That is so if it cannot be written, is one of `sources` (argument -> file, or FILE:NAME), or has none of `suffixes`.
    """
    check_writable(path)
    for what, source in sources.items():
        file, _, _ = (source or "").rpartition(":")
        if os.path.exists(path) and os.path.realpath(path) in map(os.path.realpath, filter(None, (source, file))):
            raise FileError(f"{path}: is also {what} and would be overwritten; give another name")
    if not path.endswith(suffixes):
        raise FileError(f"{path}: must end in {' or '.join(suffixes)}; give another name")


def _existing(source: str) -> Path:
    path = Path(source)
    if not path.exists():
        raise FileError(f"{source}: no such file")
    if not path.is_file():
        raise FileError(f"{source}: is a folder; give a file")
    return path


def executable_of(value: Any, cfg: Config) -> Executable:
    """The executable of a value that Python source made: itself, a `Program`, or what `build` takes."""
    if isinstance(value, Executable):
        value.check_config(cfg, value.name)
        return value
    if not isinstance(value, Program):
        from ..compiler.api import build

        value = build(value, cfg)
    return Executable.from_launch(value.finish())


def python_value(source: str, cfg: Config, dram: Dram | None = None) -> Any:
    """The value of FILE.py:NAME; a function is called with `cfg`. None for another kind of source.

    Ready schedules in it choose their tiles for the memory `dram`.
    """
    file, _, name = source.rpartition(":")
    if not file.endswith(".py"):
        return None

    with on_memory(dram, cfg):
        return _evaluate(_existing(file), name, cfg)


def _evaluate(path: Path, name: str, cfg: Config) -> Any:
    """The value `name` of the file, called if it is a function; modules beside the file can be imported."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    arguments, sys.argv = sys.argv, [str(path)]  # the command's own are not for the source
    try:
        namespace = _namespace(path)
        if name not in namespace:
            raise FileError(f"{path}: has no {name!r}; {_names(namespace)}")
        value = namespace[name]
        if not inspect.isfunction(value):
            return value
        if (made := _called(value, cfg)) is None:
            raise ScheduleError(f"{path}: {name}() returns None; let it return a schedule or a program")
        return made
    except (Exception, SystemExit) as exc:
        lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == str(path)]
        line = exc.lineno if isinstance(exc, SyntaxError) else (lines or [None])[-1]
        where = str(path) if line is None else f"{path}:{line}"
        if isinstance(exc, ScheduleError) and lines:
            raise ScheduleError(f"{where}: {exc}") from None
        if isinstance(exc, TilewrightError):
            raise
        if isinstance(exc, SystemExit):
            raise ScheduleError(f"{where}: calls sys.exit({exc.code!r}) instead of defining {name!r}") from None
        from ..compiler.sentences import one_sentence

        given = f" ({name} is called with the configuration)" if "'Config' object has no" in str(exc) else ""
        raise ScheduleError(f"{where}: {type(exc).__name__}: {one_sentence(exc)}{given}") from exc
    finally:
        sys.argv = arguments
        if folder in sys.path:  # the source may have changed it, too
            sys.path.remove(folder)


def _namespace(path: Path) -> dict[str, Any]:
    """Global names of the file. It runs once, so that a network and the kernels in one file mean the same classes.

    It runs again where it has changed, or for another memory, as ready schedules in it choose their tiles for that.
    """
    found = path.stat()
    key = str(path.resolve()), found.st_mtime_ns, found.st_size, repr(memory_facts())
    if _LATEST.get("key") != key:
        _LATEST.clear()
        _LATEST.update(values=runpy.run_path(str(path), run_name=SOURCE_NAME), key=key)
    return _LATEST["values"]


def _names(namespace: dict[str, Any]) -> str:
    """A hint at functions of the source that the user may have meant."""
    functions = {name: getattr(value, "record", value) for name, value in namespace.items()}  # a kernel has one
    made = [name for name, f in functions.items() if inspect.isfunction(f) and f.__module__ == SOURCE_NAME]
    public = [name for name in made if not name.startswith("_")]
    if not public:
        return "define it as a function of the configuration that returns a schedule"
    return f"its functions are {', '.join(public[:8])}{', ...' if len(public) > 8 else ''}"


def _called(function: Any, cfg: Config) -> Any:
    """The function's result, with the configuration for a parameter of that name or type, or else a required first."""
    parameters = list(inspect.signature(function).parameters.values())
    for p in parameters:
        if p.name in ("cfg", "config") or p.annotation in (Config, "Config"):
            return function(**{p.name: cfg}) if p.kind != p.POSITIONAL_ONLY else function(cfg)
    required = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, _EITHER)]
    if len(required) > 1:
        names = ", ".join(p.name for p in required)
        what = "give a function of the configuration alone, as f(cfg), or write @tw.kernel(...) above a kernel"
        raise ScheduleError(f"{function.__name__}({names}): {what}")
    return function(cfg) if required else function()
