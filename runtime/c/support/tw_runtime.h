/* A network in memory: program and constants with the addresses of this run, launches, addresses that move. */
#ifndef TW_RUNTIME_H
#define TW_RUNTIME_H

#include "tw_platform.h"

/* The instructions of one launch: bytes from the start of memory, and how many */
typedef struct {
    uint32_t at, count;
} tw_launch;

/* How an address moves with the value v of a symbol: step * (v / block) + within * (v % block) entries */
typedef struct {
    uint32_t step, block, within;
} tw_rule;

/* Instruction `at` of a launch moves by rule `rule` */
typedef struct {
    uint32_t at, rule;
} tw_patch;

/* Memory: first `image` bytes of program and constants, then the accelerator's, zero at first, then the processor's */
typedef struct {
    uint64_t fingerprint;
    uint32_t image, device, total, align;
    uint32_t launches;
    const tw_launch *launch;
} tw_program;

/* Take memory from the platform, copy the program there from `image`, and add its address to the instructions;
 * `memory->data` is NULL the first time. */
int tw_open(const tw_program *program, const void *image, tw_memory *memory);

/* Run a launch to its end. */
int tw_run(const tw_memory *memory, tw_launch launch);

/* Move the instructions of a launch, which ascend, from where a symbol had the value `before` to where it has `after`. */
void tw_redirect(const tw_memory *memory, tw_launch launch, const tw_patch *patches, uint32_t n, const tw_rule *rules,
             uint32_t before, uint32_t after);

#endif
