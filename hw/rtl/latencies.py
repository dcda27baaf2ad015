"""Every latency, interval and depth of the circuit: numbers, and functions of the configuration.

The circuit is built from these and its tests measure them. The table of stages (hw/stages.py), the timing model
(sim/timing/) and the compiler's estimates (compiler/cost.py) add them up and have none of their own; so nothing here
needs Amaranth.

A latency is the number of cycles from what goes in to what comes out where nothing waits; an interval that from one to
the next. A queue of depth n holds `capacity(n)` words.
"""

from __future__ import annotations

from ..config import Config

# Registers, and the start and the end of a run.
RESPONSE_LATENCY = 1  # from an AXI-Lite access to its response
ACCESS_INTERVAL = 2  # of accesses of the same kind
START_LATENCY = 2  # from CONTROL's start to the fetch unit's
FINISH_LATENCY = 1  # from the first cycle in which every unit is idle to the end of the run

# What all units are made of.
FIFO_LATENCY = 1  # of a queue in which nothing waits
TOKEN_LATENCY = 1  # from the push of a token to the first cycle in which it can be taken
SCRATCHPAD_LATENCY = 1  # from an address to its entry
OPERAND_LATENCY = 2  # the same for inputs and weights, whose memories have an output register


def capacity(depth: int) -> int:
    """Words in a queue whose memory has `depth`: the output register has one more."""
    return depth + 1


# Bursts, and the read port.
BURST_BEATS = 16  # of the longest burst: AXI3's, aligned to its own size, so it never crosses 4 kB
OUTSTANDING = 8  # bursts in flight on one port
SPLIT_LATENCY = 1  # from a request or a row to its first burst; once more where bursts are spread over ports
ADDRESS_DEPTH = 1  # of the queue of bursts whose address waits for the bus
ADDRESS_LATENCY = FIFO_LATENCY  # from a burst to its address on the bus
REQUEST_LATENCY = SPLIT_LATENCY + ADDRESS_LATENCY  # from a request to its first burst's address on the bus
BEAT_LATENCY = 1 + FIFO_LATENCY  # from a beat on the bus, which is registered, to its client
ROOM_LATENCY = 1  # from a beat that a client takes to room for another one in its buffer
RETURN_LATENCY = 2  # from the last beat of a burst to the first cycle in which another is in flight in its place

# Fetching.
FETCH_START_LATENCY = 1  # from the start to the request
FETCH_LATENCY = 1  # from an instruction's last beat to its command queue

# Loads.
COMMAND_DEPTH = 1  # of the queue of commands before the planner
TILE_LATENCY = FIFO_LATENCY + 2  # from a command to its tile's description: products, then sums
REQUEST_DEPTH = 1  # of the queue of requests between the planner and the read port
PLAN_LATENCY = TILE_LATENCY + FIFO_LATENCY  # from a command to its first request
TILE_DEPTH = 4  # of the queue of descriptions: commands whose requests run ahead of the data
WALK_LATENCY = 1  # from a tile's description, out of that queue, to its first entry's address
ENTRY_LATENCY = FIFO_LATENCY + WALK_LATENCY  # from a tile's description to its first entry's address
ENTRY_INTERVAL = 1  # of entries without data
WRITE_LATENCY = 1  # from a beat to the scratchpad's write port
NOTHING_LATENCY = TILE_LATENCY + ENTRY_LATENCY + WRITE_LATENCY  # from a command that moves nothing to its token

# The sequencer of micro-ops.
BEGIN_LATENCY = 1  # from an instruction to the first cycle in which it begins
FIRST_ISSUE_LATENCY = 4  # from there to its first micro-op issue
SEQUENCER_LATENCY = BEGIN_LATENCY + FIRST_ISSUE_LATENCY  # from an instruction to its first micro-op issue
JOB_INTERVAL = 2  # of instructions, however few micro-ops they have
ISSUES_AHEAD = 4  # between the one whose micro-op is read and the one that is issued, where issues wait
STEP_LATENCY = 1  # from an issue to the first cycle in which those that waited behind it step on

# The compute queue, whose loads and jobs (GEMM and ALU) pass each other.
ORDER_DEPTH = 32  # of the queue of instructions whose tokens are not given yet
LOADS_IN_FLIGHT = 4
CLEAR_LATENCY = 2  # from a load's last write to the first cycle in which a job that waits for it goes on
REACH_LATENCY = 4  # from a load of accumulators to the registers of its banks
CLAIM_LATENCY = REACH_LATENCY + 2  # from such a load to the first cycle in which unit ternary stays out of its banks
HOLD_LATENCY = 1  # from the last condition to the first cycle in which a load may be written
SPANS_LATENCY = 9  # from a job's begin to the reach of its loops: a product per cycle, their sums
DRAIN_LATENCY = 2  # from the end of the latest job to the first cycle that is known to have none in flight

# The pipeline of GEMM and ALU.
OPERAND_STAGES = 2  # registers between the scratchpads and the multipliers: rows chosen, then a DSP's operands
PRODUCT_STAGES = 2  # registers behind the multipliers: a DSP's product and its output
LEVELS_PER_STAGE = 1  # of the adder tree between registers
SUM_STAGES = 1  # behind the sums: they are chosen as an operand of the ALU like any other
ACC_STAGES = 2  # from the address of an accumulator to its use: read, then choose between memory and results
MULTIPLIER_LATENCY = 4  # from operands to products, where there is no RESCALE
RESCALE_LATENCY = 10  # from the operands of MUL and RESCALE to their results
PLACE_LATENCY = 2  # from the operand of LOOKUP to its place in the table
TABLE_LATENCY = 3  # from there to the value: memory, its output register, the choice of the result
REQUANTISE_LATENCY = RESCALE_LATENCY + 2  # from accumulators to int8

# Unit ternary: its sequencer, and its pipeline, which has `OPERAND_LATENCY` and `ACC_STAGES` like that of GEMM.
TERNARY_FIRST_ISSUE_LATENCY = 3  # from the first cycle in which an instruction begins to its first micro-op issue
TERNARY_SEQUENCER_LATENCY = BEGIN_LATENCY + TERNARY_FIRST_ISSUE_LATENCY  # from an instruction to its first issue
TERNARY_ISSUES_AHEAD = 2  # between the one whose micro-op is read and the one that is issued, where issues wait
TERNARY_ORDER_DEPTH = 8  # of the queue of instructions whose tokens are not given yet
PAIR_STAGES = 2  # registers before the adder tree: sums of pairs of inputs, then the one that the weights choose

# Stores.
ROW_LATENCY = 2  # from an instruction to its first row
STORE_INTERVAL = 2  # of instructions, however few rows they have
ROW_DEPTH = 1  # of the queue of rows between the planner of rows and the splitter
PACKER_ROWS = 4  # depth of the queue of rows whose data may come after their addresses; the first is being read
PACKER_BEATS = 16  # depth of the queue of data that may wait for the bus
PPU_ENTRIES = 16  # in the post-processing unit: as many as enter in its latency, with one group per entry
ACCUMULATOR_LATENCY = FIFO_LATENCY  # from a row to its first accumulator's address
STORE_ADDRESS_LATENCY = FIFO_LATENCY + SPLIT_LATENCY + ADDRESS_LATENCY  # from a row to its first burst on the bus
PLAIN_LATENCY = 1  # of a register in which an entry waits that is not requantised
STORE_DATA_LATENCY = 3 + PLAIN_LATENCY  # from a row to its first beat on the bus, where the accumulators are free
ANSWER_LATENCY = FIFO_LATENCY  # from a burst to the first cycle in which its answer is awaited
BEHIND_LATENCY = 2  # from a LOAD of PAR at the head of its queue to the first cycle in which it may pass open writes
ANSWERED_LATENCY = 2  # from the last answer to the first cycle in which a LOAD that waits for it is taken


def multipliers(cfg: Config) -> int:
    """Lanes that multiply at the same time."""
    return min(cfg.ppu_lanes, cfg.lanes)


def groups(cfg: Config) -> int:
    """Cycles in which the lanes of an entry enter the multipliers."""
    return cfg.lanes // multipliers(cfg)


def tree_stages(cfg: Config) -> int:
    """Registers in the adder tree of a dot product."""
    return -(-(cfg.block_in.bit_length() - 1) // LEVELS_PER_STAGE)


def array_latency(cfg: Config) -> int:
    """Cycles from the operands of GEMM to their sums; with `array_clock` 2 the multipliers have a level of the tree."""
    return OPERAND_STAGES + PRODUCT_STAGES + tree_stages(cfg)


def dot_latency(cfg: Config) -> int:
    """Cycles from a micro-op issue to its operands, of which its sums are one."""
    return OPERAND_LATENCY + array_latency(cfg) + SUM_STAGES


def issue_latency(cfg: Config) -> int:
    """Cycles from a micro-op issue to its write: the result is in a register, and with the next edge in memory."""
    return dot_latency(cfg) + 1


def ternary_array_latency(cfg: Config) -> int:
    """Cycles from the inputs of a ternary micro-op to its sums."""
    levels = max(cfg.block_in.bit_length() - 2, 0)  # of the adder tree, behind the pairs
    return PAIR_STAGES + -(-levels // LEVELS_PER_STAGE)


def ternary_dot_latency(cfg: Config) -> int:
    """Cycles from a ternary micro-op issue to its sums, which are added to the accumulators."""
    return OPERAND_LATENCY + ternary_array_latency(cfg)


def ternary_latency(cfg: Config) -> int:
    """Cycles from a ternary micro-op issue to its write; its bank is in use until then."""
    return ternary_dot_latency(cfg) + 1


def accumulator_latency(cfg: Config) -> int:
    """Cycles from a micro-op issue to the addresses of its accumulators, which are read as late as possible."""
    return dot_latency(cfg) - ACC_STAGES


def multiply_read(cfg: Config) -> int:
    """Cycles from a MUL or RESCALE to that in which STORE's read would bring an entry just as its operands enter."""
    return dot_latency(cfg) - SCRATCHPAD_LATENCY


def has_functions(cfg: Config) -> bool:
    """True where the ALU has LOOKUP or REDUCE."""
    return not cfg.extensions.isdisjoint({"lookup", "lane_reduce"})


def product_latency(cfg: Config) -> int:
    """Cycles from operands to products."""
    return RESCALE_LATENCY if "requant" in cfg.extensions else MULTIPLIER_LATENCY


def multiply_latency(cfg: Config) -> int:
    """`issue_latency` of MUL and RESCALE."""
    return dot_latency(cfg) + groups(cfg) + product_latency(cfg)


def multiply_interval(cfg: Config) -> int:
    """Cycles from a MUL or RESCALE to a micro-op issue that is none, or reads its result."""
    return groups(cfg) + product_latency(cfg) + ACC_STAGES


def issue_interval(cfg: Config, *, multiply: bool = False, tensor: bool = False, same_bank: bool = False) -> int:
    """Cycles of a micro-op issue that nothing else holds up; a MUL or RESCALE (`multiply`) follows its kind."""
    reads = 2 if tensor and (same_bank or cfg.acc_banks == 1) else 1
    return reads - 1 + (max(groups(cfg), 2) if multiply else 1)


def memory_cycles(cfg: Config) -> int:
    """Cycles, a power of two, after which a micro-op issue has read and written the accumulators."""
    return 1 << (issue_latency(cfg) + multiply_interval(cfg)).bit_length()


def ppu_latency(cfg: Config) -> int:
    """Cycles from an entry of accumulators to its int8 outputs, where the multipliers are free."""
    return groups(cfg) - 1 + REQUANTISE_LATENCY + FIFO_LATENCY


def quantised_data_latency(cfg: Config) -> int:
    """`STORE_DATA_LATENCY` of a requantising STORE."""
    return STORE_DATA_LATENCY - PLAIN_LATENCY + ppu_latency(cfg)
