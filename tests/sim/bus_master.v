// A bus master with the ports of a core. INSN_COUNT selects what it does: 0 keeps every rule, the others break one each.
// It reads bursts of four beats from 0x100 and writes one burst of four beats to 0x200.
module bus_master (
    input clk, input rst, output reg done, output reg error, output [7:0] watch,
    input [11:0] s_axil_awaddr, input s_axil_awvalid, output s_axil_awready,
    input [31:0] s_axil_wdata, input [3:0] s_axil_wstrb, input s_axil_wvalid, output s_axil_wready,
    output [1:0] s_axil_bresp, output reg s_axil_bvalid, input s_axil_bready,
    input [11:0] s_axil_araddr, input s_axil_arvalid, output s_axil_arready,
    output reg [31:0] s_axil_rdata, output [1:0] s_axil_rresp, output reg s_axil_rvalid, input s_axil_rready,
    output [39:0] m_load0_araddr, output [7:0] m_load0_arlen, output [2:0] m_load0_arsize,
    output [1:0] m_load0_arburst, output m_load0_arvalid, input m_load0_arready,
    input [63:0] m_load0_rdata, input [1:0] m_load0_rresp, input m_load0_rlast, input m_load0_rvalid,
    output m_load0_rready,
    output [39:0] m_store0_awaddr, output [7:0] m_store0_awlen, output [2:0] m_store0_awsize,
    output [1:0] m_store0_awburst, output m_store0_awvalid, input m_store0_awready,
    output [63:0] m_store0_wdata, output [7:0] m_store0_wstrb, output m_store0_wlast, output m_store0_wvalid,
    input m_store0_wready,
    input [1:0] m_store0_bresp, input m_store0_bvalid, output m_store0_bready
);
    reg [31:0] scenario = 0;
    reg [7:0] reads, writes, beats, answers;
    reg [31:0] age, sum;
    reg running, ar_waited, w_waited, ar_fell, w_fell, failed;

    assign watch = 0;

    // registers: 0x0c CONTROL, 0x10 INSN_COUNT; every other register reads as what was read from memory
    wire written = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid;
    assign s_axil_awready = written;
    assign s_axil_wready = written;
    assign s_axil_arready = !s_axil_rvalid;
    assign s_axil_bresp = scenario == 20 ? 2 : 0;
    assign s_axil_rresp = scenario == 24 ? 2 : 0;
    wire start = written && s_axil_awaddr == 12'h00c && s_axil_wdata[0];
    wire [7:0] many = scenario == 1 || scenario == 2 || scenario == 16 ? 4 : 1;

    assign m_load0_araddr = scenario == 6 ? 40'h104 : scenario == 7 ? 40'hff0
        : scenario == 21 ? 40'hffffff00 : 40'h100 + (scenario == 2 && ar_waited ? 64 : 0);
    assign m_load0_arlen = scenario == 3 ? 16 : 3;
    assign m_load0_arsize = scenario == 4 ? 2 : 3;
    assign m_load0_arburst = scenario == 5 ? 2 : 1;
    assign m_load0_arvalid = rst ? scenario == 18 : running && reads != 0 && !(scenario == 1 && ar_waited);
    assign m_load0_rready = 1;
    assign m_store0_awaddr = scenario == 8 ? 40'h1ff8 : scenario == 22 ? 40'hffffff00 : 40'h200;
    assign m_store0_awlen = 3;
    assign m_store0_awsize = 3;
    assign m_store0_awburst = 1;
    assign m_store0_awvalid = rst ? scenario == 23 : running && writes != 0 && reads == 0;
    assign m_store0_wdata = {32'h01020304, 24'h0, beats} ^ (scenario == 13 && w_waited ? 1 : 0);
    assign m_store0_wstrb = scenario == 11 ? 8'h5f : 8'hff;
    assign m_store0_wlast = scenario == 9 ? beats == 2 : scenario == 10 ? 0 : beats == 1;
    assign m_store0_wvalid = running && beats != 0 && reads == 0 && !(scenario == 12 && w_waited);
    assign m_store0_bready = 1;

    always @(posedge clk) begin
        if (written) begin
            s_axil_bvalid <= scenario != 17;
            if (s_axil_awaddr == 12'h010) scenario <= s_axil_wdata;
        end else if (s_axil_bready || scenario == 26) s_axil_bvalid <= scenario == 27;
        if (s_axil_arvalid && s_axil_arready) begin
            s_axil_rvalid <= scenario != 25;
            s_axil_rdata <= s_axil_araddr == 12'h010 ? scenario : sum;
        end else if (s_axil_rready || scenario == 19) s_axil_rvalid <= scenario == 28;
        ar_waited <= m_load0_arvalid && !m_load0_arready;
        w_waited <= m_store0_wvalid && !m_store0_wready;
        if (m_load0_arvalid && m_load0_arready) reads <= reads - 1;
        if (m_load0_rvalid) begin
            sum <= sum + m_load0_rdata[31:0] + m_load0_rresp;
            if (m_load0_rlast) answers <= answers - 1;
        end
        if (m_store0_awvalid && m_store0_awready) writes <= writes - 1;
        if (m_store0_wvalid && m_store0_wready) beats <= beats - 1;
        if (m_store0_bvalid) begin
            answers <= answers - 1;
            sum <= sum + {14'h0, m_store0_bresp, 16'h0};
        end
        age <= age + 1;
        if (running && (scenario == 14 ? age == 20 : scenario != 15 && answers == 0)) begin
            done <= 1;
            running <= 0;
        end
        if (running && scenario == 15) error <= 1;
        if (start) begin
            running <= 1; done <= 0; error <= 0; age <= 0; sum <= 0;
            reads <= many; writes <= 1; beats <= 4; answers <= many + 1;
        end
        if (rst) begin
            running <= 0; done <= 0; error <= 0; s_axil_bvalid <= 0; s_axil_rvalid <= 0;
            ar_waited <= 0; w_waited <= 0;
        end
    end
endmodule
