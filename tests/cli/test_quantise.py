"""`tilewright quantise`: float networks, files of a language model's integers, and mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.apps.quantise import digits
from tests.compiler.frontend.llama.conftest import llama_bytes
from tests.runtime.test_language import PIECES, tokenizer_bytes
from tilewright.cli import quantise
from tilewright.compiler.frontend.llama import forms
from tilewright.compiler.frontend.llama.measure import Loss


@pytest.fixture
def small(tmp_path):
    """The path of a small model with random weights."""
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    path = tmp_path / "small.bin"
    path.write_bytes(llama_bytes(words=len(PIECES), layers=1))
    return path


def test_a_text_of_the_integers_is_that_of_the_checkpoint(tilewright, small, tmp_path):
    path = tmp_path / "small.npz"
    found = json.loads(tilewright("quantise", small, "-o", path, "--texts", 1, "--json").out)
    assert found["bytes"] == path.stat().st_size and set(found["perplexity"]) == {"float32", "integers"}
    assert 0 <= found["agreement"] <= 1 and found["texts"] == 1 and found["weight_bits"] == 8
    rest = ("--tokenizer", tmp_path / "tok.bin", "--config", "tiny", "--tokens", 6, "--json")
    texts = [json.loads(tilewright("generate", model, *rest).out) for model in (small, path)]
    assert texts[0]["tokens"] == texts[1]["tokens"] and 0 < texts[1]["host_share"] <= 1
    done = tilewright("generate", path, *rest, "--texts", 1)
    assert done.status == 5 and "--texts compares with the float32 model; give that" in done.err


def test_scales_are_those_of_the_lines_of_a_file(tilewright, small, tmp_path):
    (tmp_path / "text").write_text("ab ab\n\n" + "ba " * 99 + "\n")  # the second is cut to the context
    unmeasured = ("--texts", 0, "--force")
    given = ("--tokenizer", tmp_path / "tok.bin", "--calibration", tmp_path / "text", *unmeasured)
    done = tilewright("quantise", small, "-o", tmp_path / "a.npz", *given)
    assert done.status == 0 and done.out.endswith(" kB\n") and "perplexity" not in done.out
    assert tilewright("quantise", small, "-o", tmp_path / "b.npz", *unmeasured).status == 0
    assert (tmp_path / "a.npz").read_bytes() != (tmp_path / "b.npz").read_bytes()
    done = tilewright("quantise", small, "-o", tmp_path / "c.npz", "--texts", 0)
    assert done.status == 2 and "--texts 0 measures nothing" in done.err and not (tmp_path / "c.npz").exists()


def test_a_form_may_be_asked_for_and_a_bad_one_is_refused(tilewright, small, tmp_path, monkeypatch):
    out, path = ("-o", tmp_path / "x.npz"), tmp_path / "x.npz"
    for form in ("static", "wide"):
        done = tilewright("quantise", small, *out, "--form", form, "--texts", 1)
        assert done.status == 0 and done.out.startswith(f"{path}: {form} form, ")
        path.unlink()
    monkeypatch.setattr("tilewright.cli.quantise.perplexities", lambda *given: Loss(4.0, 8.1, 0.5))
    for form, remedy in (("static", "give --form wide"), ("wide", "calibrate with other texts")):
        done = tilewright("quantise", small, *out, "--form", form)
        assert done.status == 5 and done.err.count("\n") == 1 and not path.exists()
        text = f"small.bin: the {form} form has a perplexity of 8.100 in integers, 4.000 in float32: more than twice as"
        assert text in done.err and f"{remedy}, or write it all the same with --force" in done.err
    assert tilewright("quantise", small, *out, "--force").status == 0 and path.exists()


def test_mistakes_are_one_line(tilewright, small, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "one").write_text("ab\n")
    (tmp_path / "cut.bin").write_bytes(small.read_bytes()[:-5])
    (tmp_path / "other.bin").write_bytes(tokenizer_bytes(PIECES[:-1]))
    tokenizer = ("--tokenizer", tmp_path / "tok.bin")
    out = ("-o", tmp_path / "x.npz")
    for arguments, status, text in (
        ((small, "-o", tmp_path / "x.tw"), 6, "must end in .npz"),
        ((tmp_path / "cut.bin", *out), 6, "the file is damaged"),
        (
            (small, *out, "--tokenizer", tmp_path / "other.bin", "--calibration", tmp_path / "empty"),
            6,
            f"holds {len(PIECES) - 1} pieces",
        ),
        ((small, *out, *tokenizer), 2, "tok.bin is for the texts of --calibration or --texts FILE; give one of them"),
        ((small, *out, "--texts", tmp_path / "empty"), 6, "brings no tokenizer; give the model's own"),
        ((small, *out, *tokenizer, "--texts", "1.5"), 6, "1.5: no such file; give a number of texts or a text file"),
        (
            (small, *out, *tokenizer, "--calibration", tmp_path / "one"),
            6,
            "holds one line, and measuring needs another",
        ),
        ((small, *out, "--calibration", tmp_path / "empty"), 6, "brings no tokenizer; give the model's own"),
        ((small, *out, *tokenizer, "--calibration", tmp_path / "empty"), 6, "holds no text"),
        ((small, *out, *tokenizer, "--calibration", tmp_path / "none"), 6, "no such file"),
    ):
        done = tilewright("quantise", *arguments)
        assert text in done.err and done.err.count("\n") == 1 and len(done.err) < 400 and done.status == status
    assert not (tmp_path / "x.npz").exists()


def test_measured_lines_are_not_those_of_the_calibration(tilewright, small, tmp_path, monkeypatch):
    """Every fourth line of --calibration is measured, or the lines of another file; a long one is several texts."""
    calls = dict[str, list]()
    monkeypatch.setattr(
        quantise, "integers_of", lambda model, texts, *rest: calls.update(used=texts) or real(model, texts)
    )
    monkeypatch.setattr(
        quantise, "perplexities", lambda model, logits, texts: calls.update(seen=texts) or Loss(4, 5, 1)
    )
    real = forms.integers_of
    (tmp_path / "text").write_text("\n".join("abcdefghi"[:k] for k in range(1, 10)))
    (tmp_path / "long").write_text("c" * 25)
    given = ("-o", tmp_path / "x.npz", "--tokenizer", tmp_path / "tok.bin", "--calibration", tmp_path / "text")

    def lengths(*options):
        done = tilewright("quantise", small, *given, *options)
        assert done.status == 0 and ("perplexity: 5.000 in integers, 4.000 in float32; " in done.out), done.err
        return [[len(text) for text in calls[key]] for key in ("used", "seen")]

    used, seen = lengths()
    assert len(used) == 7 and len(seen) == 2 and max(used + seen) > max(used[:3])
    used, seen = lengths("--texts", 1)
    assert len(used) == 8 and len(seen) == 1
    used, seen = lengths("--texts", tmp_path / "long")
    assert len(used) == 9 and seen == [12, 12, 5]  # a space and 25 letters, 11 after what begins each
    (tmp_path / "text").write_text("\n".join(letter * 25 for letter in "abcde"))
    for options, count in (((), 3), (("--texts", 1), 1)):
        used, seen = lengths(*options)
        assert (len(used), len(seen)) == (12, count)
        assert not {text[-1] for text in calls["used"]} & {text[-1] for text in calls["seen"]}
    (tmp_path / "link").symlink_to(tmp_path / "text")
    done = tilewright("quantise", small, *given, "--texts", tmp_path / "link")
    assert done.status == 2 and "link is the file of --calibration; give a number N: every fourth line" in done.err


def test_weights_of_4_bits(tilewright, small, tmp_path):
    for bits, text in ((8, " form, "), (4, " form, weights of 4 bits, ")):
        path = tmp_path / f"{bits}.npz"
        done = tilewright("quantise", small, "-o", path, "--weight-bits", bits, "--texts", 1, "--form", "wide")
        assert done.status == 0 and text in done.out, done.err
    eight, four = (np.load(tmp_path / f"{bits}.npz") for bits in (8, 4))
    assert np.abs(eight["gate"]).max() == 127 and np.abs(four["gate"]).max() == 120
    assert np.array_equal(eight["embedding"], four["embedding"])


@pytest.fixture
def network(tmp_path):
    """The path of a float network; `x.npz` beside it has samples and labels."""
    pytest.importorskip("onnxruntime")
    given = digits.samples(8)
    np.savez(tmp_path / "x.npz", x=given["x"], labels=given["labels"])
    return digits.write(tmp_path / "digits.onnx")


def test_a_float_network_becomes_an_int8_network(tilewright, network, tmp_path):
    page = tmp_path / "page.html"
    done = tilewright("quantise", network, "--calibration", tmp_path / "x.npz", "--config", "tiny", "--report", page)
    assert done.status == 0, done.err
    text = " ".join(done.out.split())
    for part in (
        "'x': (8, 1, 8, 8) is read as 8 samples, one a run",
        "ranges and form SNR dB same class % right %",
        "operator kind SNR dB lost dB",
        "right: 100.0 % in float, 100.0 % in int8",
        "times faster, 100.0 % of the multiply-accumulates on the accelerator)",
        f"{tmp_path / 'digits.int8.onnx'}: ",
    ):
        assert part in text
    assert "Where they run after quantisation" in page.read_text() and "conv2" not in done.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["digits.int8.onnx", "digits.onnx", "page.html", "x.npz"]
    data = json.loads(page.read_text().split('id="report">')[1].split("</script>")[0])
    assert data["times_faster"] > 5 and data["int8"]["on_device"] == 1 and data["samples"] == 8
    np.savez(tmp_path / "run.npz", x=digits.samples(8)["x"][:, np.newaxis])
    run = ("run", tmp_path / "digits.int8.onnx", "--inputs", tmp_path / "run.npz", "--config", "tiny", "--check")
    assert tilewright(*run).status == 0


def test_json_labels_of_a_file_and_operators_in_float(printed, network, tmp_path):
    np.save(tmp_path / "labels.npy", np.zeros(8, np.int64))
    given = ("--calibration", tmp_path / "x.npz", "--labels", tmp_path / "labels.npy", "--shape", "x=1x1x8x8")
    found = printed("quantise", network, *given, "--keep", "dense", "-o", tmp_path / "y.onnx")
    assert found["float_accuracy"] == (digits.samples(8)["labels"] == 0).mean() and found["agreement"] == 1
    assert found["kept"] == ["dense"] and 0.5 < found["int8"]["on_device"] < 1 and (tmp_path / "y.onnx").exists()


def test_inspect_needs_no_data(printed, tilewright, network):
    found = printed("quantise", network, "--inspect", "--config", "tiny")
    on_device = {row["kind"]: row["MACs"] for row in found["placement"] if row["module"] == "accelerator"}
    assert found["int8"]["on_device"] == 1 and sum(on_device.values()) == 64 * 16 * 9 + 64 * 32 * 144 + 512 * 10
    done = tilewright("quantise", network, "--inspect", "--config", "tiny")
    assert done.status == 0 and done.out.endswith("--calibration X.npz, with samples of its inputs\n")
    assert [path.name for path in network.parent.glob("*.onnx")] == ["digits.onnx"]


def test_a_network_that_gains_nothing_is_said(tilewright, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Sin", ["x"], ["y"])], "sine", [x], [y])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "sine.onnx")
    np.save(tmp_path / "x.npy", np.ones((8, 4), np.float32))
    for data in (["--inspect"], ["--calibration", tmp_path / "x.npy"]):
        out = tilewright("quantise", tmp_path / "sine.onnx", *data).out
        assert "(1.0 times faster)\nint8 is not faster than float here: use the float network as it is\n" in out
        assert "to quantise it" not in out


def test_an_interrupted_command_goes_on(tilewright, network, tmp_path, monkeypatch):
    from tilewright.apps.quantise import static

    compared, compare = [], static.compare

    def stop(*given):
        compared.append(given)
        if len(compared) == 3:
            raise KeyboardInterrupt
        return compare(*given)

    monkeypatch.setattr(static, "compare", stop)
    command = ("quantise", network, "--calibration", tmp_path / "x.npz", "-o", tmp_path / "y.onnx")
    assert tilewright(*command).status == 130 and (tmp_path / "y.onnx.parts").is_dir()
    assert tilewright(*command).status == 0 and not (tmp_path / "y.onnx.parts").exists()
    assert 5 <= len(compared) <= 6  # the two that were done are not done again


@pytest.mark.slow
def test_a_killed_command_goes_on(tilewright, network, tmp_path, monkeypatch):
    """SIGKILL once two ways are compared: the next start compares the others alone, and writes the same network."""
    from tilewright.apps.quantise import static

    given = digits.samples(160)
    np.savez(tmp_path / "x.npz", x=given["x"], labels=given["labels"])
    output, parts = tmp_path / "y.onnx", tmp_path / "y.onnx.parts"
    command = ("quantise", network, "--calibration", tmp_path / "x.npz", "-o")
    running = subprocess.Popen([Path(sys.executable).with_name("tilewright"), *command, output])
    until = time.monotonic() + 240
    while time.monotonic() < until and len([*parts.glob("*.json")]) < 2:
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    before, compared, compare = len([*parts.glob("*.json")]), [], static.compare
    assert before >= 2 and not output.exists()

    monkeypatch.setattr(static, "compare", lambda *given: compared.append(given) or compare(*given))
    assert tilewright(*command, output).status == 0 and not parts.exists()
    after = len(compared)
    assert tilewright(*command, tmp_path / "z.onnx").status == 0  # without a break
    assert output.read_bytes() == (tmp_path / "z.onnx").read_bytes()
    assert after == len(compared) - after - before


def test_mistakes_with_networks_are_one_line(tilewright, network, small, tmp_path):
    np.savez(tmp_path / "two.npz", a=np.zeros(8), b=np.zeros(8))
    (tmp_path / "text.onnx").write_text("no network")
    (tmp_path / "bad.npy").write_text("no array")
    (tmp_path / "empty.npy").write_text("")
    data = ("--calibration", tmp_path / "x.npz")
    for arguments, status, text in (
        ((network,), 2, "Missing option '--calibration'"),
        ((network, *data, "-o", tmp_path / "y.bin"), 6, "must end in .onnx"),
        ((network, *data, "-o", network), 6, "digits.onnx"),
        ((network, *data, "--report", tmp_path / "y.txt"), 6, "must end in .html"),
        ((network, *data, "--labels", tmp_path / "two.npz"), 9, "holds a, b; give one array, or name it `labels`"),
        ((network, *data, "--labels", tmp_path / "bad.npy"), 6, "cannot be read as an array of labels"),
        ((network, *data, "--labels", tmp_path / "empty.npy"), 6, "cannot be read as an array of labels"),
        ((network, *data, "--labels", tmp_path / "none.npy"), 6, "no such file"),
        ((network, "--inspect", *data), 2, "--calibration is for quantising; --inspect needs no data"),
        ((network, *data, "--shape", "x=1,a"), 2, "'x=1,a' is no shape; give one as x=1,3,224,224"),
        ((network, *data, "--mean", "a"), 2, "'a' is no list of numbers"),
        ((network, *data, "--keep", "none"), 5, "has no operator 'none' to keep in float"),
        ((network, "--calibration", tmp_path / "none.npz"), 6, "no such file"),
        ((tmp_path / "text.onnx", *data), 6, "is a text; give a network"),
        ((tmp_path / "none.onnx", *data), 6, "no such file"),
        ((tmp_path / "x.npz", *data), 5, "is no float network in .onnx, .tflite"),
        ((network, *data, "--tokenizer", network), 5, "--tokenizer is for a Llama; drop it"),
        ((network, *data, "--texts", 3), 5, "--texts is for a Llama; drop it"),
        ((network, *data, "--weight-bits", 4), 5, "--weight-bits is for a Llama; drop it"),
        ((network, *data, "--mean", "0.5"), 9, "--mean, --std and --resize are for pixels"),
        ((network, *data, "-o", "/proc/y.onnx"), 6, "/proc/y.onnx: not writable; /proc takes no files"),
        ((small, "-o", tmp_path / "y.npz", "--inspect"), 5, "--inspect is for networks, .onnx or .tflite"),
        ((small,), 2, "Missing option '-o'"),
    ):
        done = tilewright("quantise", *arguments)
        assert text in done.err and done.err.count("\n") <= 2 and len(done.err) < 500, (arguments, done.err)
        assert done.status == status, (arguments, done)
    assert not [*tmp_path.glob("y.*")] and not [*tmp_path.glob("*.parts")]
