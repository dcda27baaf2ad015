// The board's whole top level between the ports that the simulation of a core has: sim/harness.cpp drives and checks
// them. PS7 stands in for the processing system: registers arrive at its GP0, memory is behind its HP0.

module BUFG (input I, output O);
    assign O = I;
endmodule

module OBUFT (input I, T, output O);
    assign O = T ? 1'bz : I;
endmodule

module PS7 (
    output [3:0] FCLKCLK, FCLKRESETN,
    input [19:0] IRQF2P,
    input MAXIGP0ACLK, SAXIHP0ACLK,
    output [11:0] MAXIGP0AWID, MAXIGP0ARID,
    output [31:0] MAXIGP0AWADDR, MAXIGP0ARADDR, MAXIGP0WDATA,
    output [3:0] MAXIGP0AWLEN, MAXIGP0ARLEN, MAXIGP0WSTRB,
    output [1:0] MAXIGP0AWSIZE, MAXIGP0ARSIZE, MAXIGP0AWBURST, MAXIGP0ARBURST,
    output MAXIGP0AWVALID, MAXIGP0ARVALID, MAXIGP0WVALID, MAXIGP0WLAST, MAXIGP0BREADY, MAXIGP0RREADY,
    input MAXIGP0AWREADY, MAXIGP0ARREADY, MAXIGP0WREADY, MAXIGP0BVALID, MAXIGP0RVALID, MAXIGP0RLAST,
    input [11:0] MAXIGP0BID, MAXIGP0RID,
    input [1:0] MAXIGP0BRESP, MAXIGP0RRESP,
    input [31:0] MAXIGP0RDATA,
    input [31:0] SAXIHP0ARADDR, SAXIHP0AWADDR,
    input [3:0] SAXIHP0ARLEN, SAXIHP0AWLEN, SAXIHP0ARCACHE, SAXIHP0AWCACHE, SAXIHP0ARQOS, SAXIHP0AWQOS,
    input [1:0] SAXIHP0ARSIZE, SAXIHP0AWSIZE, SAXIHP0ARBURST, SAXIHP0AWBURST, SAXIHP0ARLOCK, SAXIHP0AWLOCK,
    input [2:0] SAXIHP0ARPROT, SAXIHP0AWPROT,
    input [5:0] SAXIHP0ARID, SAXIHP0AWID, SAXIHP0WID,
    input SAXIHP0ARVALID, SAXIHP0AWVALID, SAXIHP0WVALID, SAXIHP0WLAST, SAXIHP0RREADY, SAXIHP0BREADY,
    output SAXIHP0ARREADY, SAXIHP0AWREADY, SAXIHP0WREADY, SAXIHP0RVALID, SAXIHP0RLAST, SAXIHP0BVALID,
    input [63:0] SAXIHP0WDATA,
    input [7:0] SAXIHP0WSTRB,
    output [63:0] SAXIHP0RDATA,
    output [1:0] SAXIHP0RRESP, SAXIHP0BRESP
);
    localparam [31:0] BASE = 32'h43c00000;
    assign FCLKCLK = {3'b000, board.clk};
    assign FCLKRESETN = {3'b000, ~board.rst};
    assign {MAXIGP0AWID, MAXIGP0ARID} = {12'h5a5, 12'hc3c};
    assign {MAXIGP0AWLEN, MAXIGP0ARLEN, MAXIGP0AWSIZE, MAXIGP0ARSIZE} = {4'd0, 4'd0, 2'd2, 2'd2};
    assign {MAXIGP0AWBURST, MAXIGP0ARBURST, MAXIGP0WLAST} = {2'd1, 2'd1, 1'b1};
    assign MAXIGP0AWADDR = BASE + board.s_axil_awaddr;
    assign MAXIGP0ARADDR = BASE + board.s_axil_araddr;
    assign {MAXIGP0WDATA, MAXIGP0WSTRB} = {board.s_axil_wdata, board.s_axil_wstrb};
    assign {MAXIGP0AWVALID, MAXIGP0WVALID, MAXIGP0BREADY} =
        {board.s_axil_awvalid, board.s_axil_wvalid, board.s_axil_bready};
    assign {MAXIGP0ARVALID, MAXIGP0RREADY} = {board.s_axil_arvalid, board.s_axil_rready};
    assign {SAXIHP0ARREADY, SAXIHP0RVALID, SAXIHP0RLAST} =
        {board.m_load0_arready, board.m_load0_rvalid, board.m_load0_rlast};
    assign {SAXIHP0RDATA, SAXIHP0RRESP} = {board.m_load0_rdata, board.m_load0_rresp};
    assign {SAXIHP0AWREADY, SAXIHP0WREADY, SAXIHP0BVALID, SAXIHP0BRESP} =
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
    input [63:0] m_load0_rdata,
    input [1:0] m_load0_rresp, m_store0_bresp,
    output [63:0] m_store0_wdata,
    output [7:0] m_store0_wstrb,
    output done, error
);
    TOP dut (.led_error_0__io(error));
    assign done = dut.ps7.IRQF2P[0];
    assign watch = 0;  // stays inside of the top
    assign {s_axil_awready, s_axil_wready} = {dut.ps7.MAXIGP0AWREADY, dut.ps7.MAXIGP0WREADY};
    assign {s_axil_arready, s_axil_rdata} = {dut.ps7.MAXIGP0ARREADY, dut.ps7.MAXIGP0RDATA};
    // an answer with another id, or without its end, is none
    assign s_axil_bvalid = dut.ps7.MAXIGP0BVALID & dut.ps7.MAXIGP0BID == 12'h5a5;
    assign s_axil_rvalid = dut.ps7.MAXIGP0RVALID & dut.ps7.MAXIGP0RLAST & dut.ps7.MAXIGP0RID == 12'hc3c;
    assign {s_axil_bresp, s_axil_rresp} = {dut.ps7.MAXIGP0BRESP, dut.ps7.MAXIGP0RRESP};
    // attributes that the port must have; without them there is no request
    wire loads = dut.ps7.SAXIHP0ARCACHE == 4'b0011 & {dut.ps7.SAXIHP0ARID, dut.ps7.SAXIHP0ARPROT} == 9'd0
        & {dut.ps7.SAXIHP0ARLOCK, dut.ps7.SAXIHP0ARQOS} == 6'd0;
    wire stores = dut.ps7.SAXIHP0AWCACHE == 4'b0011 & {dut.ps7.SAXIHP0AWID, dut.ps7.SAXIHP0AWPROT} == 9'd0
        & {dut.ps7.SAXIHP0AWLOCK, dut.ps7.SAXIHP0AWQOS, dut.ps7.SAXIHP0WID} == 12'd0;
    assign m_load0_arvalid = dut.ps7.SAXIHP0ARVALID & loads;
    assign m_store0_awvalid = dut.ps7.SAXIHP0AWVALID & stores;
    assign {m_load0_araddr, m_store0_awaddr} = {8'd0, dut.ps7.SAXIHP0ARADDR, 8'd0, dut.ps7.SAXIHP0AWADDR};
    assign {m_load0_arlen, m_store0_awlen} = {dut.ps7.SAXIHP0ARLEN, dut.ps7.SAXIHP0AWLEN};
    assign {m_load0_arsize, m_store0_awsize} = {1'b0, dut.ps7.SAXIHP0ARSIZE, 1'b0, dut.ps7.SAXIHP0AWSIZE};
    assign {m_load0_arburst, m_store0_awburst} = {dut.ps7.SAXIHP0ARBURST, dut.ps7.SAXIHP0AWBURST};
    assign {m_load0_rready, m_store0_bready} = {dut.ps7.SAXIHP0RREADY, dut.ps7.SAXIHP0BREADY};
    assign {m_store0_wvalid, m_store0_wlast} = {dut.ps7.SAXIHP0WVALID, dut.ps7.SAXIHP0WLAST};
    assign {m_store0_wdata, m_store0_wstrb} = {dut.ps7.SAXIHP0WDATA, dut.ps7.SAXIHP0WSTRB};
endmodule
