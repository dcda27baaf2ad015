"""What a file is refused for, in one line."""

from tilewright.compiler.frontend.core import Refusal, shortened, summary

LONG = "model/block/" * 9 + "BiasAdd"


def test_long_names_keep_their_end():
    assert shortened("x" * 40) == "x" * 40
    assert len(shortened(LONG)) == 40 and shortened(LONG).startswith("...") and shortened(LONG).endswith("k/BiasAdd")


def test_one_refusal():
    assert (
        summary([Refusal("is bad", "COS", "cos_0", "y")]) == "1 unsupported construct: COS 'cos_0' (output 'y') is bad"
    )
    text = summary([Refusal(f"has input '{LONG}'", "COS", "cos_0", LONG)])
    assert len(text) < 150 and text.count("k/BiasAdd'") == 2


def test_refusals_that_differ_in_names_and_numbers_are_one():
    found = [Refusal("input 'x': no")]
    found += [Refusal(f"has weights '{k}' of {k} bits", "CONV_2D", f"conv_2d_{k}", "y") for k in range(28)]
    text = summary(found)
    assert text.startswith(
        "29 unsupported constructs: 28 times: CONV_2D 'conv_2d_0' (output 'y') has weights '0' of 0 bits"
    )
    assert text.endswith("; input 'x': no")


def test_many_kinds_are_counted():
    text = summary([Refusal("is bad", f"KIND{'X' * k}", "k", "y") for k in range(15)])
    assert text.count("is bad") == 12 and text.endswith("; and 3 more of 3 other kinds")
