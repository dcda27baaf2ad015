// A board's whole top level between the ports that the simulation of a core has: sim/harness.cpp drives and checks
// them. $cell stands in for the processing system: registers arrive at its $gp, memory is behind its $hp.
// Words with a dollar are filled in from the board.

module $buffer (input I, output O);
    assign O = I;
endmodule

module OBUFT (input I, T, output O);
    assign O = T ? 1'bz : I;
endmodule

module $cell (
    output [3:0] $clock, FCLKRESETN,
    input [$irq_high:0] $irq,
    input ${gp}ACLK, $hp_clocks,
    output [$gp_id:0] ${gp}AWID, ${gp}ARID,
    output [$gp_addr:0] ${gp}AWADDR, ${gp}ARADDR,
    output [$gp_high:0] ${gp}WDATA,
    output [$gp_strb:0] ${gp}WSTRB,
    output [$len:0] ${gp}AWLEN, ${gp}ARLEN,
    output [$size:0] ${gp}AWSIZE, ${gp}ARSIZE,
    output [1:0] ${gp}AWBURST, ${gp}ARBURST,
    output ${gp}AWVALID, ${gp}ARVALID, ${gp}WVALID, ${gp}WLAST, ${gp}BREADY, ${gp}RREADY,
    input ${gp}AWREADY, ${gp}ARREADY, ${gp}WREADY, ${gp}BVALID, ${gp}RVALID, ${gp}RLAST,
    input [$gp_id:0] ${gp}BID, ${gp}RID,
    input [1:0] ${gp}BRESP, ${gp}RRESP,
    input [$gp_high:0] ${gp}RDATA,
    input [$addr:0] ${hp}ARADDR, ${hp}AWADDR,
    input [$len:0] ${hp}ARLEN, ${hp}AWLEN,
    input [3:0] ${hp}ARCACHE, ${hp}AWCACHE, ${hp}ARQOS, ${hp}AWQOS,
    input [$size:0] ${hp}ARSIZE, ${hp}AWSIZE,
    input [1:0] ${hp}ARBURST, ${hp}AWBURST,
    input [$lock:0] ${hp}ARLOCK, ${hp}AWLOCK,
    input [2:0] ${hp}ARPROT, ${hp}AWPROT,
    input [5:0] ${hp}ARID, ${hp}AWID$wid,
    input ${hp}ARVALID, ${hp}AWVALID, ${hp}WVALID, ${hp}WLAST, ${hp}RREADY, ${hp}BREADY,
    output ${hp}ARREADY, ${hp}AWREADY, ${hp}WREADY, ${hp}RVALID, ${hp}RLAST, ${hp}BVALID,
    input [$data:0] ${hp}WDATA,
    input [$strb:0] ${hp}WSTRB,
    output [$data:0] ${hp}RDATA,
    output [1:0] ${hp}RRESP, ${hp}BRESP
);
    wire [31:0] aw = 32'h$base + board.s_axil_awaddr, ar = 32'h$base + board.s_axil_araddr;
    wire [6:0] lane = $lanes == 1 ? 0 : {aw[3:2], 5'd0};  // its first bit, in a port wider than a register
    wire [$gp_high:0] mask = 32'hffffffff, word = board.s_axil_wdata;
    wire [$gp_strb:0] strobes = board.s_axil_wstrb;
    assign $clock = {3'b000, board.clk};
    assign FCLKRESETN = {3'b000, ~board.rst};
    assign ${gp}AWID = $id_write;
    assign ${gp}ARID = $id_read;
    assign {${gp}AWLEN, ${gp}ARLEN} = 0;
    assign ${gp}AWSIZE = 2;
    assign ${gp}ARSIZE = 2;
    assign {${gp}AWBURST, ${gp}ARBURST, ${gp}WLAST} = {2'd1, 2'd1, 1'b1};
    assign ${gp}AWADDR = aw;
    assign ${gp}ARADDR = ar;
    // garbage in the lanes that the address does not choose
    assign ${gp}WDATA = {$lanes{32'h5a5a5a5a}} & ~(mask << lane) | word << lane;
    assign ${gp}WSTRB = strobes << lane[6:3];
    assign {${gp}AWVALID, ${gp}WVALID, ${gp}BREADY} =
        {board.s_axil_awvalid, board.s_axil_wvalid, board.s_axil_bready};
    assign {${gp}ARVALID, ${gp}RREADY} = {board.s_axil_arvalid, board.s_axil_rready};
    assign {${hp}ARREADY, ${hp}RVALID, ${hp}RLAST} =
        {board.m_load0_arready, board.m_load0_rvalid, board.m_load0_rlast};
    // a port that is set to fewer bits has garbage above them
    wire [$data:0] beat = board.m_load0_rdata, ones = ~0;
    assign {${hp}RDATA, ${hp}RRESP} = {ones << $axi | beat, board.m_load0_rresp};
    assign {${hp}AWREADY, ${hp}WREADY, ${hp}BVALID, ${hp}BRESP} =
        {board.m_store0_awready, board.m_store0_wready, board.m_store0_bvalid, board.m_store0_bresp};
endmodule

module board (
    input clk, rst,
    output [7:0] watch,
    input [11:0] s_axil_awaddr, s_axil_araddr,
    input [31:0] s_axil_wdata,
    input [3:0] s_axil_wstrb,
    input s_axil_awvalid, s_axil_wvalid, s_axil_bready, s_axil_arvalid, s_axil_rready,
    output s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid,
    output [31:0] s_axil_rdata,
    output [1:0] s_axil_bresp, s_axil_rresp,
    output [39:0] m_load0_araddr, m_store0_awaddr,
    output [3:0] m_load0_arlen, m_store0_awlen,
    output [2:0] m_load0_arsize, m_store0_awsize,
    output [1:0] m_load0_arburst, m_store0_awburst,
    output m_load0_arvalid, m_load0_rready, m_store0_awvalid, m_store0_wvalid, m_store0_wlast, m_store0_bready,
    input m_load0_arready, m_load0_rvalid, m_load0_rlast, m_store0_awready, m_store0_wready, m_store0_bvalid,
    input [$axi - 1:0] m_load0_rdata,
    input [1:0] m_load0_rresp, m_store0_bresp,
    output [$axi - 1:0] m_store0_wdata,
    output [$axi / 8 - 1:0] m_store0_wstrb,
    output done, error
);
    top dut (.led_error_0__io(error));
    assign done = dut.ps.$irq[0];
    assign watch = 0;  // stays inside of the top
    assign {s_axil_awready, s_axil_wready} = {dut.ps.${gp}AWREADY, dut.ps.${gp}WREADY};
    // the lane of a wide port that the address chooses
    reg [1:0] asked = 0;
    always @(posedge clk) if (s_axil_arvalid & s_axil_arready) asked <= s_axil_araddr[3:2];
    assign s_axil_arready = dut.ps.${gp}ARREADY;
    assign s_axil_rdata = dut.ps.${gp}RDATA >> ($lanes == 1 ? 0 : {asked, 5'd0});
    // an answer with another id, or without its end, is none
    assign s_axil_bvalid = dut.ps.${gp}BVALID & dut.ps.${gp}BID == $id_write;
    assign s_axil_rvalid = dut.ps.${gp}RVALID & dut.ps.${gp}RLAST & dut.ps.${gp}RID == $id_read;
    assign {s_axil_bresp, s_axil_rresp} = {dut.ps.${gp}BRESP, dut.ps.${gp}RRESP};
    // attributes that the port must have; without them there is no request
    wire loads = dut.ps.${hp}ARCACHE == 4'b0011 & ~|{dut.ps.${hp}ARID, dut.ps.${hp}ARPROT}
        & ~|{dut.ps.${hp}ARLOCK, dut.ps.${hp}ARQOS, dut.ps.${hp}ARLEN >> 4, dut.ps.${hp}ARADDR >> 40};
    wire stores = dut.ps.${hp}AWCACHE == 4'b0011 & ~|{dut.ps.${hp}AWID, dut.ps.${hp}AWPROT$wid_zero}
        & ~|{dut.ps.${hp}AWLOCK, dut.ps.${hp}AWQOS, dut.ps.${hp}AWLEN >> 4, dut.ps.${hp}AWADDR >> 40};
    assign m_load0_arvalid = dut.ps.${hp}ARVALID & loads;
    assign m_store0_awvalid = dut.ps.${hp}AWVALID & stores;
    assign m_load0_araddr = dut.ps.${hp}ARADDR;
    assign m_store0_awaddr = dut.ps.${hp}AWADDR;
    assign {m_load0_arlen, m_store0_awlen} = {dut.ps.${hp}ARLEN[3:0], dut.ps.${hp}AWLEN[3:0]};
    assign m_load0_arsize = dut.ps.${hp}ARSIZE;
    assign m_store0_awsize = dut.ps.${hp}AWSIZE;
    assign {m_load0_arburst, m_store0_awburst} = {dut.ps.${hp}ARBURST, dut.ps.${hp}AWBURST};
    assign {m_load0_rready, m_store0_bready} = {dut.ps.${hp}RREADY, dut.ps.${hp}BREADY};
    assign {m_store0_wvalid, m_store0_wlast} = {dut.ps.${hp}WVALID, dut.ps.${hp}WLAST};
    assign m_store0_wdata = dut.ps.${hp}WDATA;
    assign m_store0_wstrb = dut.ps.${hp}WSTRB;
endmodule
