"""hw/fields.py: the declaration of fields and extensions."""

import dataclasses
from dataclasses import dataclass

import pytest

from tilewright.hw.config import EXTENSIONS as KNOWN
from tilewright.hw.config import Config
from tilewright.hw.fields import EXTENSIONS, Part, names, number, parameters, power, switch, text


@dataclass(frozen=True)
class Machine:
    """One field of each kind."""

    wheels: int = power(4, (2, 8), Part.FIRST, "wheels", "rubber", key="wheel_count")
    one: int = power(1, (1, 1), Part.FIRST, "a constant", "nothing")
    seats: int = number(3, (1, 6), Part.CIRCUIT, "seats", "room")
    fast: bool = switch(False, Part.CIRCUIT, "faster", "fuel")
    parts: tuple[str, ...] = names(("hood",), ("hood", "roof"), Part.LATER, "parts", "steel")
    label: str = text("car", Part.CIRCUIT, "its name", "nothing")
    plain: int = 2


def test_a_declaration_has_default_limits_and_description():
    found = parameters(Machine)
    assert list(found) == ["wheels", "one", "seats", "fast", "parts", "label", "plain"]
    assert Machine() == Machine(4, 1, 3, False, ("hood",), "car", 2)
    wheels = found["wheels"]
    assert (wheels.low, wheels.high, wheels.powers, wheels.key) == (2, 8, True, "wheel_count")
    legal = [found[name].legal for name in list(found)[:-1]]
    texts = ["powers of two, 2 to 8", "1", "1 to 6", "true, false", "names among hood, roof", "printable text"]
    assert legal == texts
    assert found["plain"].part == Part.LATER  # an undeclared field counts where it is not its default


@pytest.mark.parametrize("name, parameter", parameters(Config).items(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_field_of_a_configuration_says_what_it_is_and_costs(name, parameter):
    assert parameter.meaning and parameter.cost and parameter.legal
    (default,) = (f.default for f in dataclasses.fields(Config) if f.name == name)
    assert (default is None) == bool(parameter.usual)


def test_every_extension_says_what_it_is_and_costs():
    assert set(EXTENSIONS) == KNOWN
    assert all(extension.meaning and extension.cost for extension in EXTENSIONS.values())
