"""hw/errors.py and hw/needs.py: named errors, and packages that are missing."""

import pytest

from tilewright.hw import errors
from tilewright.hw.errors import ExecutionError, ProgramError, TilewrightError, UnsupportedError
from tilewright.hw.needs import need

# The exit statuses are part of the command's interface; docs/cli.md lists them.
EXIT_CODES = {
    "TilewrightError": 1,
    "ConfigError": 3,
    "EncodingError": 4,
    "UnsupportedError": 5,
    "FileError": 6,
    "SignatureError": 6,
    "CapacityError": 7,
    "Unfit": 7,
    "ProgramError": 8,
    "ExecutionError": 8,
    "DeadlockError": 8,
    "TokenError": 8,
    "HangError": 8,
    "AccessError": 8,
    "RaceError": 8,
    "SteadyError": 8,
    "FingerprintError": 8,
    "UnwrittenError": 8,
    "CertificateError": 8,
    "InputError": 9,
    "ScheduleError": 10,
    "KernelError": 10,
    "BoardError": 11,
}


CLASSES = {name: c for name, c in vars(errors).items() if isinstance(c, type)}


def test_every_class_is_a_tilewright_error_with_a_fixed_exit_code():
    assert {name: c.exit_code for name, c in CLASSES.items()} == EXIT_CODES
    assert all(issubclass(c, TilewrightError) for c in CLASSES.values())


def test_click_keeps_exit_code_2_for_itself():
    assert 2 not in EXIT_CODES.values()


@pytest.mark.parametrize("name", ["ConfigError", "EncodingError", "InputError"])
def test_impossible_values_are_value_errors_too(name):
    assert issubclass(CLASSES[name], ValueError)


@pytest.mark.parametrize("name", ["ExecutionError", "DeadlockError", "TokenError", "AccessError"])
def test_execution_errors_carry_the_instruction(name):
    error = CLASSES[name]("instruction 3: GEMM: reason", 3)
    assert (str(error), error.index) == ("instruction 3: GEMM: reason", 3)
    assert CLASSES[name]("no instruction").index is None
    assert issubclass(CLASSES[name], ExecutionError) and issubclass(CLASSES[name], ProgramError)


def test_names_in_a_text_cannot_move_a_terminals_cursor():
    assert str(ProgramError("layer '\x1b[2Jé\u202e' is\nwrong")) == "layer '\\x1b[2Jé\\u202e' is\nwrong"


def test_what_is_there_is_no_error():
    need("this", "dev", "json", "importlib.util")


@pytest.mark.parametrize(
    "modules, text",
    [
        (
            ["json", "no_such_tool"],
            r"this needs no-such-tool, which is not installed; pip install 'tilewright\[dev\]'$",
        ),
        (["no_tool", "no.tool"], "this needs no-tool and no.tool, which are not installed; "),
    ],
)
def test_what_is_missing_is_named_with_what_brings_it(modules, text):
    with pytest.raises(UnsupportedError, match=text):
        need("this", "dev", *modules)


def test_packages_are_called_as_their_makers_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="this needs Amaranth and gRPC and protobuf, "):
        need("this", "rtl", "amaranth", "grpc", "google.protobuf")
