// Clock, memory and bus of one Verilated core, and the checks of its bus rules. device.py calls it once per program.
//
// Compiled together with the C++ that Verilator makes of the core (class Vcore) and with
//   AXI_BITS, LOAD_PORTS, STORE_PORTS   of the configuration,
//   FIFOS                               FIFO(name) for each register with the number of words in the memory of a FIFO,
//   GATES                               GATE(name) for each unit with a clock of its own (gating.py),
//   WATCH_COUNTED, WATCH_COUNTS         the first bit of the core's output `watch` that is counted, and how many are.
// A cycle: sample the core's outputs, rising edge, memory and checks, new inputs, falling edge. No input follows an
// output within a cycle, nor an output of the buses an input.

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "Vcore.h"
#include "Vcore___024root.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE_VCD
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

#ifndef FIFOS
#define FIFOS
#endif
#ifndef GATES
#define GATES
#endif

void Vcore___024root___eval(Vcore___024root*);  // called by Vcore::eval

namespace {

constexpr unsigned BEAT = AXI_BITS / 8;   // bytes of a beat
constexpr unsigned LONGEST = 16;          // beats of a burst: AXI3's limit
constexpr unsigned PAGE = 4096;           // no burst crosses a multiple of it
constexpr unsigned QUEUE = 64;            // bursts that a port's queue holds, at most
constexpr unsigned WAITING = 2 * LONGEST; // write beats that may come before their address
constexpr unsigned OKAY = 0, SLVERR = 2, DECERR = 3;
constexpr unsigned PATIENCE = 10000;      // cycles within which a register access, or done after an error, must come

constexpr unsigned log2_of(unsigned n) { return n == 1 ? 0 : 1 + log2_of(n / 2); }

// The fields of sim/rtl/device.py's Parameters, in its order.
struct Parameters {
    uint64_t latency, response, port_bytes, total_bytes, outstanding, outstanding_writes;
    uint64_t seed;                     // 0: no random stalls
    uint64_t most_reads;               // bursts that the core promises not to exceed on a load port
    uint64_t fault_first, fault_last;  // addresses that answer with a bus error
};

struct Random {
    uint64_t state;
    uint64_t next() {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return state * 0x2545f4914f6cdd1dull >> 32;
    }
    unsigned below(unsigned n) { return n ? next() % n : 0; }
};

// Stalls of one channel: in `eighths` of all cycles, and sometimes a long one.
struct Stalls {
    Random random{0};
    unsigned eighths = 0, rest = 0;
    void seed(uint64_t value, unsigned channel) {
        if (!value) return;
        random.state = (value + 1) * 0x9e3779b97f4a7c15ull + channel * 0xd1342543de82ef95ull;
        for (int i = 0; i < 8; i++) random.next();
        eighths = random.below(8);
    }
    bool now() {
        if (!random.state) return false;
        if (rest) return rest--, true;
        if (random.below(256) == 0) rest = random.below(100);
        return random.below(8) < eighths;
    }
    unsigned extra() { return random.state && random.below(4) == 0 ? random.below(60) : 0; }
};

// What a test does to one channel at the handshake numbered `at`, counted since `calm`: the memory is not ready for it for
// `wait` cycles; a beat read or a write response is `answer` where that is an error, and the beat's data are wrong then.
struct Disturbance {
    uint64_t at = 0, wait = 0, answer = OKAY;
    uint64_t seen = 0;                // handshakes
    uint64_t address = ~uint64_t(0);  // of the beat or burst that had the answer
    bool waits(bool wanted) {
        if (!wait || seen != at) return false;
        wait -= wanted;
        return true;
    }
    bool answers(uint64_t its_address) {
        if (answer == OKAY || seen != at) return false;
        address = its_address;
        return true;
    }
};

// The first broken rule.
struct Violation {
    char text[256] = "";
    bool seen() const { return text[0]; }
    __attribute__((format(printf, 2, 3))) void report(const char* format, ...) {
        if (seen()) return;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
    }
};

struct Memory {
    uint8_t* bytes = nullptr;
    uint64_t size = 0, fault_first = 1, fault_last = 0;

    unsigned answer(uint64_t address) const {  // for the beat at `address`
        if (address >= size) return DECERR;
        bool faulty = fault_first <= fault_last && address + BEAT > fault_first && address <= fault_last;
        return faulty ? SLVERR : OKAY;
    }
    void read(uint64_t address, uint8_t* to) const {
        if (address + BEAT <= size) {
            memcpy(to, bytes + address, BEAT);
        } else {
            memset(to, 0, BEAT);
            if (address < size) memcpy(to, bytes + address, size - address);
        }
    }
    bool write(uint64_t address, const uint8_t* from, uint64_t strobes) {  // false: beyond the end
        for (unsigned i = 0; i < BEAT; i++)
            if (strobes >> i & 1) {
                if (address + i >= size) return false;
                bytes[address + i] = from[i];
            }
        return true;
    }
};

// Bytes that one port, or all together, may still move: refilled every cycle, at most to `most`.
struct Budget {
    uint64_t rate = 0, most = 0, credit = 0;
    bool unlimited = true;
    void set(uint64_t bytes, uint64_t wanted, uint64_t limit) {
        rate = bytes, most = limit, unlimited = bytes >= wanted;
    }
    void refill() { credit = credit + rate < most ? credit + rate : most; }
    bool enough() const { return unlimited || credit >= BEAT; }
    void take() { credit -= unlimited ? 0 : BEAT; }
    void give() { credit += unlimited ? 0 : BEAT; }
};

// An address channel as its master drives it; checks the payload, and that it is stable until it is accepted.
struct AddressChannel {
    const char *port, *channel;
    QData* addr;
    CData *len, *size, *burst, *valid, *ready;
    bool waited = false;
    uint64_t held = 0;

    uint64_t payload() const {
        return *addr | uint64_t(*len) << 40 | uint64_t(*size) << 48 | uint64_t(*burst) << 52;
    }
    uint64_t start() const { return (held & 0xffffffffff) / BEAT * BEAT; }
    unsigned beats() const { return (held >> 40 & 0xff) < LONGEST ? (held >> 40 & 0xff) + 1 : LONGEST; }
    bool sample(Violation& bad, uint64_t cycle) {
        if (!waited && !*valid) return false;
        if (!*valid) {
            bad.report("%s: %svalid fell before %sready, cycle %lu", port, channel, channel, cycle);
            return waited = false;
        }
        uint64_t now = payload();
        if (!waited)
            check(bad, cycle);
        else if (now != held)
            bad.report("%s: the %s payload changed while it waited, cycle %lu, address %#lx", port, channel, cycle,
                       uint64_t(*addr));
        held = now;
        waited = !*ready;
        return *ready;
    }
    void check(Violation& bad, uint64_t cycle) const {
        uint64_t start = *addr, beats = *len + 1u;
        const char* rule = beats > LONGEST                                       ? "is longer than 16 beats"
                           : *size != log2_of(BEAT)                              ? "has another size than the bus"
                           : *burst != 1                                         ? "is not incrementing"
                           : start % BEAT                                        ? "starts inside a beat"
                           : start / PAGE != (start + beats * BEAT - 1) / PAGE   ? "crosses 4 kB"
                                                                                 : nullptr;
        if (rule)
            bad.report("%s: a burst %s, cycle %lu, address %#lx, %lu beats, %ssize %u, %sburst %u", port, rule, cycle,
                       start, beats, channel, *size, channel, *burst);
    }
};

// The bursts of one or several ports since `watch`: how many of each length, and the most under way at one port.
struct Bursts {
    uint64_t lengths[LONGEST + 1] = {}, most = 0;
    void add(unsigned beats, uint64_t under_way) { lengths[beats]++, most = std::max(most, under_way); }
    void add(const Bursts& other) {
        for (unsigned k = 0; k <= LONGEST; k++) lengths[k] += other.lengths[k];
        most = std::max(most, other.most);
    }
};

struct ReadPort {
    struct Burst {
        uint64_t due, address;
        unsigned beats, next;
        uint8_t answer[LONGEST], data[LONGEST * BEAT];
    };
    AddressChannel ar;
    CData *rvalid, *rready, *rlast, *rresp;
    void* rdata;
    Stalls ar_stalls, r_stalls;
    Disturbance at_ar, at_r;
    Budget budget;
    Burst queue[QUEUE];
    unsigned head = 0, count = 0;
    bool ar_taken = false, r_taken = false;
    Bursts bursts;

    void sample(Violation& bad, uint64_t cycle) {
        ar_taken = ar.sample(bad, cycle);
        r_taken = *rvalid && *rready;
    }
    void edge(const Parameters& p, const Memory& memory, Violation& bad, uint64_t cycle) {
        if (r_taken) {
            Burst& b = queue[head];
            if (++b.next == b.beats) head = (head + 1) % QUEUE, count--;
            at_r.seen++;
        }
        if (ar_taken) {
            Burst& b = queue[(head + count++) % QUEUE];
            b.due = cycle + p.latency + ar_stalls.extra();
            b.beats = ar.beats(), b.next = 0, b.address = ar.start();
            uint64_t address = b.address;
            at_ar.seen++;
            for (unsigned i = 0; i < b.beats; i++, address += BEAT) {
                b.answer[i] = memory.answer(address);
                memory.read(address, b.data + i * BEAT);
            }
            bursts.add(b.beats, count);
            if (count > p.most_reads)
                bad.report("%s: %u bursts in flight, %lu promised, cycle %lu", ar.port, count, p.most_reads, cycle);
        }
    }
    void drive(const Parameters& p, Budget& all, uint64_t next) {
        if (!budget.unlimited) budget.refill();
        bool address_waits = at_ar.waits(*ar.valid);
        *ar.ready = count < p.outstanding && !ar_stalls.now() && !address_waits;
        if (*rvalid && !r_taken) return;
        bool due = count && queue[head].due <= next, waits = at_r.waits(due);
        *rvalid = due && budget.enough() && all.enough() && !r_stalls.now() && !waits;
        if (!*rvalid) return;
        budget.take(), all.take();
        Burst& b = queue[head];
        if (at_r.answers(b.address + b.next * BEAT)) {
            b.answer[b.next] = at_r.answer;
            for (unsigned i = 0; i < BEAT; i++) b.data[b.next * BEAT + i] ^= 0xff;
        }
        memcpy(rdata, b.data + b.next * BEAT, BEAT);
        *rresp = b.answer[b.next];
        *rlast = b.next + 1 == b.beats;
    }
    void reset() {
        *ar.ready = *rvalid = 0;
        count = 0, ar.waited = false;
    }
};

struct WritePort {
    struct Burst {
        uint64_t address, due;
        unsigned beats, got;
        uint64_t strobes[LONGEST];
        uint8_t data[LONGEST * BEAT];
    };
    struct Word {
        uint64_t strobes;
        bool last;
        uint8_t data[BEAT];
        bool operator==(const Word& other) const {
            return strobes == other.strobes && last == other.last && !memcmp(data, other.data, BEAT);
        }
    };
    AddressChannel aw;
    CData *wvalid, *wready, *wlast, *bvalid, *bready, *bresp;
    const void *wdata, *wstrb;
    Stalls aw_stalls, w_stalls, b_stalls;
    Disturbance at_aw, at_w, at_b;
    Budget budget;
    Burst queue[QUEUE];
    Word words[WAITING], held;
    unsigned head = 0, count = 0, filling = 0;  // `filling` bursts from `head` on have all their data
    unsigned first_word = 0, word_count = 0;
    bool aw_taken = false, w_taken = false, b_taken = false, waited = false, reserved = false;
    Bursts bursts;

    Word word() const {
        Word w{0, bool(*wlast), {}};
        memcpy(w.data, wdata, BEAT);
        memcpy(&w.strobes, wstrb, (BEAT + 7) / 8);
        return w;
    }
    void sample(Violation& bad, uint64_t cycle) {
        aw_taken = aw.sample(bad, cycle);
        w_taken = *wvalid && *wready;
        b_taken = *bvalid && *bready;
        if (!*wvalid) {
            if (waited) bad.report("%s: wvalid fell before wready, cycle %lu", aw.port, cycle);
            waited = false;
            return;
        }
        Word now = word();
        if (waited && !(now == held))
            bad.report("%s: the w payload changed while it waited, cycle %lu", aw.port, cycle);
        held = now;
        waited = !w_taken;
    }
    void edge(const Parameters& p, Memory& memory, Violation& bad, uint64_t cycle) {
        if (b_taken) {
            Burst& b = queue[head];
            for (unsigned i = 0; i < b.beats && *bresp == OKAY; i++)
                memory.write(b.address + i * BEAT, b.data + i * BEAT, b.strobes[i]);
            head = (head + 1) % QUEUE, count--, filling--;
            at_b.seen++;
        }
        if (aw_taken) {
            Burst& b = queue[(head + count++) % QUEUE];
            b.address = aw.start(), b.beats = aw.beats(), b.got = 0;
            bursts.add(b.beats, count);
            at_aw.seen++;
        }
        if (w_taken) {
            at_w.seen++;
            words[(first_word + word_count++) % WAITING] = held;
            uint64_t bits = held.strobes ? held.strobes >> __builtin_ctzll(held.strobes) : 0;
            if (bits & (bits + 1))
                bad.report("%s: wstrb %#lx has a hole, cycle %lu", aw.port, held.strobes, cycle);
        }
        for (; word_count && filling < count; word_count--) {
            Burst& b = queue[(head + filling) % QUEUE];
            const Word& w = words[first_word];
            first_word = (first_word + 1) % WAITING;
            memcpy(b.data + b.got * BEAT, w.data, BEAT);
            b.strobes[b.got++] = w.strobes;
            if (w.last != (b.got == b.beats)) {
                bad.report("%s: wlast is %d at beat %u of %u, cycle %lu", aw.port, w.last, b.got, b.beats, cycle);
            }
            if (b.got == b.beats) b.due = cycle + p.response + w_stalls.extra(), filling++;
        }
    }
    unsigned answer(const Memory& memory) const {
        const Burst& b = queue[head];
        unsigned worst = OKAY;
        for (unsigned i = 0; i < b.beats; i++) {
            uint64_t address = b.address + i * BEAT;
            unsigned one = memory.answer(address);
            if (address + BEAT > memory.size && address < memory.size && b.strobes[i] >> (memory.size - address))
                one = DECERR;
            worst = one > worst ? one : worst;
        }
        return worst;
    }
    void drive(const Parameters& p, const Memory& memory, Budget& all, uint64_t next) {
        if (!budget.unlimited) budget.refill();
        if (reserved && !w_taken) budget.give(), all.give();
        bool address_waits = at_aw.waits(*aw.valid), word_waits = at_w.waits(*wvalid);
        *aw.ready = count < p.outstanding_writes && !aw_stalls.now() && !address_waits;
        *wready = word_count < WAITING - 1 && budget.enough() && all.enough() && !w_stalls.now() && !word_waits;
        reserved = *wready;
        if (reserved) budget.take(), all.take();
        if (*bvalid && !b_taken) return;
        bool due = filling && queue[head].due <= next, waits = at_b.waits(due);
        *bvalid = due && !b_stalls.now() && !waits;
        if (*bvalid) *bresp = at_b.answers(queue[head].address) ? at_b.answer : answer(memory);
    }
    void reset() {
        *aw.ready = *wready = *bvalid = 0;
        count = filling = word_count = 0, aw.waited = waited = reserved = false;
    }
};

// Counts the bits of `watch` from WATCH_COUNTED on, and records the cycles in which a lower one is set, with the counts.
struct Watch {
    struct Event {  // sim/rtl/watch.py's event_type
        uint64_t cycle, what, counts[WATCH_COUNTS];
    };
    Event* events = nullptr;
    uint64_t room = 0, count = 0;
    uint64_t counts[WATCH_COUNTS] = {};
    void look(unsigned now, uint64_t cycle) {
        for (int k = 0; k < WATCH_COUNTS; k++) counts[k] += now >> (WATCH_COUNTED + k) & 1;
        if (!(now & ((1 << WATCH_COUNTED) - 1)) || count == room) return;
        Event& event = events[count++];
        event.cycle = cycle, event.what = now;
        std::copy(counts, counts + WATCH_COUNTS, event.counts);
    }
};

#define FIFO(name) +1
constexpr unsigned FIFO_COUNT = 0 FIFOS;
#undef FIFO

struct Sim {
    uint64_t fullest[FIFO_COUNT + 1] = {};  // the most words in each of FIFOS since `watch`; one more, as there may be none
    VerilatedContext context;
    std::unique_ptr<Vcore> core{new Vcore(&context)};
    Parameters p;
    Memory memory;
    Violation bad;
    Budget all;
    Stalls registers;
    Watch watch;
    uint64_t cycle = 0;
#if VM_TRACE
    std::unique_ptr<Trace> trace;
#endif
    // clang-format off
#define LOAD_PORT(k) {{"load" #k, "ar", &core->m_load##k##_araddr, &core->m_load##k##_arlen, \
        &core->m_load##k##_arsize, &core->m_load##k##_arburst, &core->m_load##k##_arvalid, \
        &core->m_load##k##_arready}, &core->m_load##k##_rvalid, &core->m_load##k##_rready, \
        &core->m_load##k##_rlast, &core->m_load##k##_rresp, &core->m_load##k##_rdata, {}, {}, {}, {}}
#define STORE_PORT(k) {{"store" #k, "aw", &core->m_store##k##_awaddr, &core->m_store##k##_awlen, \
        &core->m_store##k##_awsize, &core->m_store##k##_awburst, &core->m_store##k##_awvalid, \
        &core->m_store##k##_awready}, &core->m_store##k##_wvalid, &core->m_store##k##_wready, \
        &core->m_store##k##_wlast, &core->m_store##k##_bvalid, &core->m_store##k##_bready, \
        &core->m_store##k##_bresp, &core->m_store##k##_wdata, &core->m_store##k##_wstrb, {}, {}, {}, {}, {}, {}, {}}
    ReadPort loads[LOAD_PORTS] = {LOAD_PORT(0),
#if LOAD_PORTS > 1
        LOAD_PORT(1),
#endif
#if LOAD_PORTS > 2
        LOAD_PORT(2), LOAD_PORT(3),
#endif
    };
    WritePort stores[STORE_PORTS] = {STORE_PORT(0),
#if STORE_PORTS > 1
        STORE_PORT(1),
#endif
#if STORE_PORTS > 2
        STORE_PORT(2), STORE_PORT(3),
#endif
    };
    // clang-format on

    explicit Sim(const Parameters& parameters) : p(parameters) {
        // Verilator does not initialise inputs
        core->clk = core->rst = 0;
        core->s_axil_awvalid = core->s_axil_wvalid = core->s_axil_bready = 0;
        core->s_axil_arvalid = core->s_axil_rready = 0;
        for (ReadPort& port : loads) *port.ar.ready = *port.rvalid = 0;
        for (WritePort& port : stores) *port.aw.ready = *port.wready = *port.bvalid = 0;
        core->eval();
        unsigned channel = 0;
        memory.fault_first = p.fault_first, memory.fault_last = p.fault_last;
        // a port's beats come at even intervals; of all ports together, what is no whole beat is kept for the next cycle
        uint64_t most = p.port_bytes > BEAT ? p.port_bytes : BEAT, wanted = p.port_bytes < BEAT ? p.port_bytes : BEAT;
        all.set(p.total_bytes, (LOAD_PORTS + STORE_PORTS) * wanted, p.total_bytes + BEAT - 1);
        registers.seed(p.seed, channel++);
        for (ReadPort& port : loads) {
            port.budget.set(p.port_bytes, BEAT, most);
            port.ar_stalls.seed(p.seed, channel++), port.r_stalls.seed(p.seed, channel++);
        }
        for (WritePort& port : stores) {
            port.budget.set(p.port_bytes, BEAT, most);
            port.aw_stalls.seed(p.seed, channel++), port.w_stalls.seed(p.seed, channel++);
            port.b_stalls.seed(p.seed, channel++);
        }
    }
    ~Sim() {
#if VM_TRACE
        if (trace) trace->close();
#endif
        core->final();
    }
    void dump(uint64_t time) {
#if VM_TRACE
        if (trace) trace->dump(time);
#else
        (void)time;
#endif
    }
    void reset() {
        core->rst = 1;
        for (ReadPort& port : loads) port.reset();
        for (WritePort& port : stores) port.reset();
        for (int i = 0; i < 4; i++) {
            rise();
            fall();
            cycle++;
            if (i == 0) continue;  // the core may hold its reset in a register
            for (ReadPort& port : loads)
                if (*port.ar.valid) bad.report("%s: arvalid is high in reset", port.ar.port);
            for (WritePort& port : stores)
                if (*port.aw.valid || *port.wvalid) bad.report("%s: awvalid or wvalid is high in reset", port.aw.port);
        }
        core->rst = 0;
        core->eval();
        for (int i = 0; i < 2; i++) tick();
    }
    // A falling edge only evaluates inputs, which the next rising edge does too: without waveforms the clock need not
    // fall; it is enough to store that it was low. That saves a tenth of the time.
    void rise() {
        core->clk = 1;
#if VM_TRACE
#if ARRAY_CLOCK > 1
        core->clk2x = 1;
#endif
        core->eval();
        dump(10 * cycle);
#else
        core->rootp->__Vtrigprevexpr___TOP__clk__0 = 0;
#define GATE(name) \
    core->clk_##name = 1, core->rootp->__Vtrigprevexpr___TOP__clk_##name##__0 = !core->en_##name;
        GATES
#undef GATE
#if ARRAY_CLOCK > 1
        core->clk2x = 1, core->rootp->__Vtrigprevexpr___TOP__clk2x__0 = 0;
        Vcore___024root___eval(core->rootp);
        core->rootp->__Vtrigprevexpr___TOP__clk2x__0 = 0;
#define GATE(name) core->rootp->__Vtrigprevexpr___TOP__clk_##name##__0 = 1;
        GATES
#undef GATE
#endif
        Vcore___024root___eval(core->rootp);
#endif
    }
    // The other edges of a cycle: those of the clock of twice the rate, too, where the core has one.
    void fall() {
#if VM_TRACE
#if ARRAY_CLOCK > 1
        core->clk2x = 0;
        core->eval();
        dump(10 * cycle + 2);
        core->clk2x = 1;
#endif
        core->clk = 0;
        core->eval();
        dump(10 * cycle + 5);
#if ARRAY_CLOCK > 1
        core->clk2x = 0;
        core->eval();
        dump(10 * cycle + 7);
#endif
#endif
    }
    void levels() {
        [[maybe_unused]] uint64_t* most = fullest;
#define FIFO(name) *most = std::max<uint64_t>(*most, core->rootp->name), most++;
        FIFOS
#undef FIFO
    }
    void tick() {
        for (ReadPort& port : loads) port.sample(bad, cycle);
        for (WritePort& port : stores) port.sample(bad, cycle);
        if (watch.room) watch.look(core->watch, cycle), levels();
        rise();
        if (!all.unlimited) all.refill();
        for (ReadPort& port : loads) port.edge(p, memory, bad, cycle);
        for (WritePort& port : stores) port.edge(p, memory, bad, cycle);
        uint64_t next = cycle + 1;
        if (next & 1) for (ReadPort& port : loads) port.drive(p, all, next);
        for (WritePort& port : stores) port.drive(p, memory, all, next);
        if (!(next & 1)) for (ReadPort& port : loads) port.drive(p, all, next);
        fall();
        cycle = next;
    }
    Disturbance* at(unsigned channel) {  // in the order of tools/faults/kinds.py
        ReadPort* load = channel < 2 * LOAD_PORTS ? &loads[channel / 2] : nullptr;
        if (load) return channel % 2 ? &load->at_r : &load->at_ar;
        WritePort& store = stores[(channel - 2 * LOAD_PORTS) / 3 % STORE_PORTS];
        Disturbance* of_it[] = {&store.at_aw, &store.at_w, &store.at_b};
        return of_it[(channel - 2 * LOAD_PORTS) % 3];
    }
    bool quiet() const {
        for (const ReadPort& port : loads)
            if (port.count || *port.ar.valid) return false;
        for (const WritePort& port : stores)
            if (port.count || port.word_count || *port.aw.valid || *port.wvalid) return false;
        return true;
    }
    // 0: more cycles to run, 1: done, 2: a rule is broken
    int run(uint64_t most) {
        unsigned after_error = 0;
        for (uint64_t stop = cycle + most; cycle < stop && !core->done && !bad.seen();) {
            tick();
            if (core->error && ++after_error > PATIENCE)
                bad.report("error without done for %u cycles, cycle %lu", after_error, cycle);
        }
        if (core->done && !quiet()) bad.report("done with transfers in flight, cycle %lu", cycle);
        return bad.seen() ? 2 : core->done;
    }
    // Register accesses: false where the slave breaks a rule.
    bool write(uint32_t offset, uint32_t value, uint32_t strobes) {
        unsigned wait[2] = {registers.extra() % 5, registers.extra() % 5};
        core->s_axil_awaddr = offset, core->s_axil_wdata = value, core->s_axil_wstrb = strobes;
        bool sent[2] = {false, false};
        for (unsigned n = 0; n < PATIENCE; n++) {
            core->s_axil_awvalid = !sent[0] && n >= wait[0], core->s_axil_wvalid = !sent[1] && n >= wait[1];
            core->s_axil_bready = !registers.now();
            core->eval();
            bool answered = core->s_axil_bvalid && core->s_axil_bready;
            unsigned response = core->s_axil_bresp;
            if (core->s_axil_bvalid && !(sent[0] && sent[1]))
                bad.report("s_axil: bvalid before address and data, register %#x", offset);
            bool held = core->s_axil_bvalid && !core->s_axil_bready;
            sent[0] |= core->s_axil_awvalid && core->s_axil_awready;
            sent[1] |= core->s_axil_wvalid && core->s_axil_wready;
            tick();
            if (held && !core->s_axil_bvalid) bad.report("s_axil: bvalid fell before bready, register %#x", offset);
            if (answered) {
                core->s_axil_bready = 0;
                core->eval();
                if (response) bad.report("s_axil: bresp %u writing register %#x", response, offset);
                return !bad.seen();
            }
        }
        bad.report("s_axil: no answer for %u cycles writing register %#x", PATIENCE, offset);
        return false;
    }
    bool read(uint32_t offset, uint32_t* value) {
        core->s_axil_araddr = offset;
        bool sent = false;
        for (unsigned n = 0; n < PATIENCE; n++) {
            core->s_axil_arvalid = !sent;
            core->s_axil_rready = !registers.now();
            core->eval();
            bool answered = core->s_axil_rvalid && core->s_axil_rready, held = core->s_axil_rvalid && !answered;
            unsigned response = core->s_axil_rresp;
            *value = core->s_axil_rdata;
            if (core->s_axil_rvalid && !sent) bad.report("s_axil: rvalid before its address, register %#x", offset);
            sent |= core->s_axil_arvalid && core->s_axil_arready;
            tick();
            if (held && (!core->s_axil_rvalid || core->s_axil_rdata != *value))
                bad.report("s_axil: r changed before rready, register %#x", offset);
            if (answered) {
                core->s_axil_rready = 0;
                core->eval();
                if (response) bad.report("s_axil: rresp %u reading register %#x", response, offset);
                return !bad.seen();
            }
        }
        bad.report("s_axil: no answer for %u cycles reading register %#x", PATIENCE, offset);
        return false;
    }
};

}  // namespace

extern "C" {
Sim* sim_new(const Parameters* p) { return new Sim(*p); }
void sim_free(Sim* s) { delete s; }
void sim_reset(Sim* s) { s->reset(); }
void sim_calm(Sim* s) {
    for (unsigned k = 0; k < 2 * LOAD_PORTS + 3 * STORE_PORTS; k++) *s->at(k) = {};
}
void sim_disturb(Sim* s, unsigned channel, uint64_t at, uint64_t wait, uint64_t answer) {
    Disturbance& it = *s->at(channel);
    it.at = at, it.wait = wait, it.answer = answer;
}
void sim_disturbed(Sim* s, unsigned channel, Disturbance* found) { *found = *s->at(channel); }
void sim_memory(Sim* s, uint8_t* bytes, uint64_t size) { s->memory.bytes = bytes, s->memory.size = size; }
int sim_write(Sim* s, uint32_t offset, uint32_t value, uint32_t strobes) { return s->write(offset, value, strobes); }
int sim_read(Sim* s, uint32_t offset, uint32_t* value) { return s->read(offset, value); }
int sim_run(Sim* s, uint64_t most) { return s->run(most); }
uint64_t sim_cycle(Sim* s) { return s->cycle; }
void sim_watch(Sim* s, Watch::Event* events, uint64_t room) {
    s->watch = {events, room};
    std::fill(s->fullest, s->fullest + FIFO_COUNT, 0);
    for (ReadPort& port : s->loads) port.bursts = {};
    for (WritePort& port : s->stores) port.bursts = {};
}
void sim_bursts(Sim* s, Bursts* both) {  // of the loads, of the stores
    both[0] = both[1] = {};
    for (const ReadPort& port : s->loads) both[0].add(port.bursts);
    for (const WritePort& port : s->stores) both[1].add(port.bursts);
}
void sim_fifos(Sim* s, uint64_t* most, uint64_t count) { std::copy(s->fullest, s->fullest + count, most); }
uint64_t sim_watched(Sim* s) { return s->watch.count; }
const char* sim_violation(Sim* s) { return s->bad.text; }
int sim_waves(Sim* s, const char* path) {  // false: built without
#if VM_TRACE
    s->context.traceEverOn(true);
    s->trace.reset(new Trace);
    s->core->trace(s->trace.get(), 99);
    s->trace->open(path);
    return s->trace->isOpen();
#else
    (void)s, (void)path;
    return 0;
#endif
}
}
