"""sim/rtl/rewrite.py: forms that change, and those that must not. That circuits stay equal, every test of one shows."""

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
    assert "33" not in text and "32:0" not in text and text.count("[31:0]") == 3


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
