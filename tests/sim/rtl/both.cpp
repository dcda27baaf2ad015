// Drives the multiplier array of the circuit and the function that replaces it with the same operands, in every cycle.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

#include "Vcore.h"
#include "verilated.h"

namespace {

struct Both {
    VerilatedContext context;
    Vcore core{&context};
    std::mt19937_64 random{1};
    uint64_t cycles = 0;

    Both() {  // what stands in the registers before the first operands is no sum
        core.port_en = 1;
        tick();
        drain();
    }
    template <class Port>
    static void put(Port& port, unsigned byte, uint8_t value) {
        reinterpret_cast<uint8_t*>(&port)[byte] = value;
    }
    template <class Port>
    void fill(Port& port, unsigned bits) {
        memset(&port, 0, sizeof port);
        for (unsigned k = 0; k < bits / 8; k++) put(port, k, random() % 4 ? random() : random() % 2 ? 0x80 : 0x7f);
    }
    bool tick() {
        core.port_clk = 0, core.eval();
        core.port_clk = 1, core.eval();
        cycles++;
        return !memcmp(&core.circuit_sums, &core.function_sums, SUM_BYTES);
    }
    bool drain() {
        core.port_en = 0;
        bool equal = true;
        for (int k = 0; k < 40; k++) equal &= tick();
        return equal;
    }
};

}  // namespace

extern "C" {

// Every product of int8 operands at every multiplier; the cycles, or 0 where sums differ.
uint64_t products() {
    Both both;
    auto& core = both.core;
    core.port_en = 1, core.port_rows = 0, core.port_row = 0;
    for (unsigned i = 0; i < BATCH * BLOCK_IN; i++)
        for (unsigned x = 0; x < 256; x++)
            for (unsigned w = 0; w < 256; w++) {
                memset(&core.port_inp, 0, sizeof core.port_inp);
                both.put(core.port_inp, i, x);
                for (unsigned k = 0; k < BLOCK_OUT * BLOCK_IN; k++) both.put(core.port_wgt, k, w + 37 * k);
                if (!both.tick()) return 0;
            }
    return both.drain() ? both.cycles : 0;
}

// `count` cycles of random operands, some without; the cycles, or 0 where sums differ.
uint64_t arrays(uint64_t count) {
    Both both;
    auto& core = both.core;
    for (uint64_t k = 0; k < count; k++) {
        both.fill(core.port_inp, PORT_INP_BITS), both.fill(core.port_wgt, PORT_WGT_BITS);
        core.port_en = both.random() % 4 != 0;
        core.port_rows = DEPTHWISE && both.random() % 2;
        core.port_row = both.random() % BLOCK_IN;
#if ROW_TAPS > 1
        both.fill(core.port_near, PORT_NEAR_BITS);
        core.port_extra = core.port_rows ? both.random() % ROW_TAPS : 0;
        if (core.port_extra) core.port_row = core.port_row / ROW_TAPS * ROW_TAPS;
#endif
        if (!both.tick()) return 0;
    }
    return both.drain() ? both.cycles : 0;
}
}
