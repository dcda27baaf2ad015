"""`tilewright generate`: text of a small model with random weights, its pieces, and where a token's time goes."""

import json
from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.llama.conftest import llama_bytes
from tests.compiler.frontend.llama.test_files import PIECES as LETTERS
from tests.compiler.frontend.llama.test_files import folder, gguf_file, weights
from tests.runtime.test_language import PIECES, tokenizer_bytes
from tilewright.cli import remedy
from tilewright.cli.generate import PARTS, recomputing, shares
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_graph, launch_cycles
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import Executable, LaunchStep
from tilewright.sim.dram import ZYNQ_HP


@pytest.fixture
def small(tmp_path):
    """Arguments that name a small model with random weights."""
    (tmp_path / "small.bin").write_bytes(llama_bytes(words=len(PIECES), width=64, hidden=160, layers=1))
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    return ["generate", tmp_path / "small.bin", "--tokenizer", tmp_path / "tok.bin", "--config", "tiny"]


def test_json_has_text_tokens_cycles_and_perplexity(tilewright, small):
    facts = ("--prompt", "ab", "--tokens", 7, "--on", "timing", "--check", "--texts", 1, "--json")
    done = tilewright(*small, *facts)
    found = json.loads(done.out)
    assert done.status == 0 and found["wrong_positions"] == [] and found["device"] == "timing"
    assert found["tokens"][:2] == [1, PIECES.index(b" ab")] and found["text"].startswith("ab")
    steps = len(found["cycles_per_token"])
    assert steps <= 6 and found["tokens_per_second"] == pytest.approx(1e8 * steps / sum(found["cycles_per_token"]))
    assert set(found["perplexity"]) == {"float32", "integers"} and 0 < found["host_share"] < 1
    assert set(found["cycles_by_part"]) == {"weights", "attention", "norms", "rest", "host"}
    assert json.loads(tilewright(*small, *facts).out)["tokens"] == found["tokens"]


@pytest.mark.circuit
def test_the_metrics_of_the_last_token(tilewright, small, tmp_path):
    path = tmp_path / "p.json"
    done = tilewright(*small, "--tokens", 3, "--on", "timing", "--json", "--profile", path, "--profile", "-")
    result, found = json.loads(done.out), json.loads(path.read_text())
    assert found["metrics"] == result["metrics"] and found["device"] == "timing"
    assert found["metrics"]["cycles"] == result["cycles_per_token"][-1]
    assert "most tokens" in tilewright(*small, "--tokens", 3, "--on", "timing", "--profile", "-").out
    done = tilewright(*small, "--tokens", 3, "--profile", tmp_path / "p.trace")
    assert done.status and "has no cycles of instructions" in done.err and not (tmp_path / "p.trace").exists()


FACTS = ("--prompt", "ab", "--config", "tiny", "--json", "--check", "--tokens")


def test_a_gguf_file_brings_its_tokenizer(tilewright, refused, tmp_path):
    path = gguf_file(tmp_path / "m.gguf", weights(), words=LETTERS)
    found = json.loads(tilewright("generate", path, *FACTS, 5).out)
    assert found["tokens"][:4] == [1, 3, 4, 5] and found["text"][:2] == "ab" and found["wrong_positions"] == []
    refused(9, "a context of 25 positions; the model has at most 24", "generate", path, *FACTS, 5, "--context", 25)
    other = folder(tmp_path / "m", weights())
    refused(6, "tokenizer.json: no such file; give the model's tokenizer", "generate", other, *FACTS, 5)


@pytest.mark.circuit
def test_formats_of_the_same_weights_write_the_same(tilewright, refused, tmp_path):
    path = gguf_file(tmp_path / "m.gguf", weights(), words=LETTERS)
    given = (folder(tmp_path / "m", weights()), "--tokenizer", path)
    texts = [json.loads(tilewright("generate", *model, *FACTS, 6).out)["tokens"] for model in ((path,), given)]
    assert texts[0] == texts[1]
    refused(9, "6 tokens do not fit the context of 5", "generate", path, *FACTS, 6, "--context", 5)
    integers = tmp_path / "m.npz"
    assert tilewright("quantise", path, "-o", integers, "--context", 7, "--texts", 0, "--force").status == 0
    refused(9, "8 tokens do not fit the context of 7", "generate", integers, "--tokenizer", path, *FACTS, 8)
    refused(5, "a context is chosen for a Llama in float", "compile", integers, "-o", "x.tw", "--context", 5)


def test_a_model_beyond_the_boards_memory_is_refused(refused, tmp_path):
    """Before its weights are read: here none of the sizes are those of the tensors."""
    sizes: dict[str, Any] = {
        "embedding_length": 4096,
        "feed_forward_length": 11008,
        "block_count": 32,
        "context_length": 4096,
    }
    sizes |= {"attention.head_count": 32, "attention.head_count_kv": 32}
    path = gguf_file(tmp_path / "m.gguf", weights(), words=LETTERS, **sizes)
    text = "m.gguf: needs 6,688 MiB in integers (6,176 of weights, 512 of caches for 2,048 tokens), pynq_z1 has 512; "
    for verb in (("generate",), ("compile", "-o", tmp_path / "x.tw"), ("quantise", "-o", tmp_path / "x.npz")):
        refused(7, text, verb[0], path, *verb[1:])
    refused(7, text, "assign", path, "--config", "pynq_z1_plus")
    refused(7, "the accelerator has 4,096; take a smaller model", "compile", path, "-o", "x.tw", "--config", "tiny")
    wide = ("-o", tmp_path / "x.npz", "--form", "wide")  # whose caches have 16 bits
    refused(7, "needs 7,200 MiB in integers (6,176 of weights, 1,024 of caches", "quantise", path, *wide)


def test_wrong_tokenizers_and_templates_are_found_before_compiling(small, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.cli.generate.open_program", None)
    (tmp_path / "other.bin").write_bytes(tokenizer_bytes(PIECES[:-1]))
    (tmp_path / "t.jinja").write_text("{% for %}")
    model, tokenizer = small[1], small[2:4]
    refused(6, f"holds {len(PIECES) - 1} pieces", "generate", model, "--tokenizer", tmp_path / "other.bin")
    refused(5, "has no chat template", "generate", model, *tokenizer, "--chat")
    refused(6, "t.jinja: line 1: ", "generate", model, *tokenizer, "--chat", "--template", tmp_path / "t.jinja")


@pytest.mark.circuit
def test_whole_blocks_of_a_prompt_are_one_run(tilewright, small, tmp_path):
    (tmp_path / "small.bin").write_bytes(llama_bytes(words=len(PIECES), width=32, hidden=32, layers=1, context=48))
    facts = ("--prompt", "a c " * 8 + "a", "--tokens", 38, "--check", "--compare", "--json", "--config", "pynq_z1_plus")
    found = json.loads(tilewright(*small[:-2], *facts).out)
    count = found["prefill_tokens"]
    assert count == 32 and len(found["prefill_cycles"]) == 2 and found["wrong_positions"] == []
    assert len(found["cycles_per_token"]) + count == len(found["tokens"]) - (len(found["tokens"]) == 38)
    assert found["compared"]["steps"] == 38 and found["compared"]["ratio"] > 1
    done = tilewright(*small[:-2], *facts[:-3], *facts[-2:])
    assert "the cache saves " in done.out
    assert done.status == 0 and "32 tokens of the prompt in blocks: " in done.out, done.err


def test_run_takes_the_inputs_of_either_entry(tilewright, small, tmp_path):
    (tmp_path / "small.bin").write_bytes(llama_bytes(words=len(PIECES), width=32, hidden=32, layers=1, context=16))
    given = {"one": ("token", "position", 1), "many": ("tokens", "block", 16)}
    for name, (tokens, place, count) in given.items():
        arrays: dict[str, Any] = {tokens: np.full(count, 5, np.int32), place: np.zeros(1, np.int32)}
        np.savez(tmp_path / f"{name}.npz", **arrays)
        done = tilewright(
            "run", tmp_path / "small.bin", "--inputs", tmp_path / f"{name}.npz", "--config", "pynq_z1_plus", "--check"
        )
        text = "--check needs the network's inputs, token, position; given are tokens, block, of another entry"
        assert done.status == 5 * (count > 1) and (text in done.err) == (count > 1), done.err


def test_a_program_writes_the_same_as_its_checkpoint(tilewright, small, tmp_path):
    verb, model, *rest = small
    assert tilewright("compile", model, "-o", tmp_path / "m.tw", "--config", "tiny").status == 0
    facts = ("--tokens", 5, "--temperature", 1.5, "--seed", 3, "--json")
    texts = [json.loads(tilewright(verb, which, *rest, *facts).out)["tokens"] for which in (model, tmp_path / "m.tw")]
    assert texts[0] == texts[1]
    for options in (["--check"], ["--texts", 2], ["--compare"]):
        done = tilewright(verb, tmp_path / "m.tw", *rest, *options)
        assert done.status == 5 and f"{options[0]} needs golden values; MODEL must be a network" in done.err


@pytest.mark.parametrize(
    "options, status, text",
    [
        (["--tokens", 13], 9, "13 tokens do not fit the context of 12"),
        (["--tokens", 1], 2, "1 is not in the range"),
        (["--texts", -1], 2, "-1 is not in the range"),
        (["--seed", -1], 2, "-1 is not in the range"),
        (["--seed", 0], 2, "--seed is for choices at random; give --temperature above 0, too"),
        (["--top-p", 0.5], 2, "--top-p is for choices at random"),
        (["--top-k", 5, "--temperature", 0], 2, "--top-k is for choices at random"),
        (["--top-p", 1.5, "--temperature", 1], 9, "top_p 1.5: must be above 0 and at most 1"),
        (["--temperature", -1], 9, "temperature -1.0: must be a finite number from 0 on"),
        (["--stop", ""], 9, "a stop text is empty; give at least one character"),
        (["--chat"], 5, "has no chat template; give one with --template FILE"),
        (["--chat", "--serve", ":0"], 2, "--chat and --serve: give one of them"),
        (["--system", "x"], 2, "--system begins a conversation; give --chat, too"),
        (["--template", "x"], 2, "--template is for conversations; give --chat or --serve, too"),
        (["--chat", "--template", "absent"], 6, "absent: no such file"),
        (["--api-key-file", "x"], 2, "--api-key-file is for callers of a server; give --serve, too"),
        (["--serve", ":0", "--check"], 2, "--check is for one text or chat; leave it out with --serve"),
        (["--serve", "0.0.0.0:0"], 3, "others could read what travels to this address"),
        (["--compare"], 5, "tiny: its program takes a token at a time"),
        (["--on", "nothing"], 5, "nothing"),
    ],
)
def test_mistakes_are_one_line(tilewright, small, options, status, text):
    done = tilewright(*small, *options)
    assert text in done.err and done.err.count("\n") == 1 and len(done.err) < 330 and done.status == status
    assert not done.out  # it is refused before the text


def test_what_the_host_computes_is_said(tilewright, small, monkeypatch):
    """Of a program whose layers are on the host; that of this checkpoint has enough on the device."""
    assert json.loads(tilewright(*small, "--tokens", 2, "--json").out)["remedy"] is None
    monkeypatch.setattr(remedy, "share_on_device", lambda executable: 0.25)
    done = tilewright(*small, "--tokens", 2)
    assert done.out.splitlines()[-1].startswith("25 % of the multiply-accumulates are on the device, as ")


def test_other_programs_are_refused(refused, small, tmp_path):
    refused(5, "is no language model", "generate examples/digits/digits.onnx", *small[2:])
    cut = tmp_path / "cut.bin"
    cut.write_bytes((tmp_path / "small.bin").read_bytes()[:-4])
    refused(6, "the file is damaged", "generate", cut, *small[2:])
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes(PIECES[:-1]))
    refused(6, f"holds {len(PIECES) - 1} pieces", *small)


@pytest.mark.circuit
def test_parts_add_up_to_the_launches_that_run(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(llama_bytes(width=32, hidden=32, layers=1, context=80))
    graph = import_model(path)
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    launches = [step.launch for step in executable.steps if isinstance(step, LaunchStep)]
    first, second, block, later = (launch_cycles(Executable.from_launch(launch)) for launch in launches)
    found = shares(graph, executable, range(66), [0, 16, 64], 1e8)
    assert found["prefill_cycles"] == [block, block, later]
    assert shares(graph, executable, [], [0], 1e8) == {"prefill_cycles": [block]}
    assert found["cycles_per_token"] == [first] * 64 + [second] * 2
    slow = ZYNQ_HP.replace(latency=200)
    later = launch_cycles(Executable.from_launch(launches[1]), slow)
    assert second < later == shares(graph, executable, [65], [], 1e8, slow)["cycles_per_token"][0]
    parts = found["cycles_by_part"].copy()
    host = parts.pop("host")
    assert tuple(parts) == PARTS and sum(parts.values()) == pytest.approx((64 * first + 2 * second) / 66)
    assert min(parts.values()) > 0 and host > 0
    assert found["host_share"] == pytest.approx(host / (host + sum(parts.values())))


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(llama_bytes(width=32, hidden=32, layers=1, context=48))
    return import_model(path)


@pytest.mark.circuit
def test_totals_are_sums_of_runs(graph):
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    launches = [step.launch for step in executable.steps if isinstance(step, LaunchStep)]
    token, block = (launch_cycles(Executable.from_launch(launch)) for launch in launches)
    found = recomputing(graph, executable, 35, 1e8)
    cache, again = found["cache"], found["recomputing"]
    for parts in (cache, again):
        assert parts["total"] == sum(parts[part] for part in ("weights", "attention", "norms", "rest", "host"))
    assert cache["total"] - cache["host"] == 35 * token and found["steps"] == 35
    host = cache["host"] // 35
    runs = [divmod(count, 16) for count in range(1, 36)]
    wanted = sum(
        whole * (block + host) + min(rest * (token + host), (block + host) * (rest > 0)) for whole, rest in runs
    )
    assert again["total"] == pytest.approx(wanted, rel=1e-6)
    assert found["ratio"] == again["total"] / cache["total"] > 2
