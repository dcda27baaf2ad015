#include "tw_runtime.h"

#include <string.h>

#include "tw_hardware.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "instructions and tensors in memory are little-endian"
#endif

#define FIELD(word, name) ((uint32_t)((word) >> TW_LOAD_##name##_LO & (((uint64_t)1 << TW_LOAD_##name##_BITS) - 1)))

static const uint32_t entry_bytes[][8] = TW_ENTRY_BYTES; /* by opcode and memory id */

/* Only loads and stores have an address. Byte 0 belongs to no buffer, so that 0 marks those that move nothing. */
static uint64_t moved(uint64_t word, uint64_t base)
{
    if (!(TW_TRANSFERS >> FIELD(word, OP) & 1) || FIELD(word, DRAM_BASE) == 0)
        return word;
    return word + (base / entry_bytes[FIELD(word, OP)][FIELD(word, MEM)] << TW_LOAD_DRAM_BASE_LO);
}

int tw_open(const tw_program *program, const void *image, tw_memory *memory)
{
    int status = tw_platform_open(program->fingerprint);
    tw_memory found = *memory; /* a network that is opened again keeps its memory */
    if (status == 0 && found.data == NULL)
        status = tw_platform_memory(program->total, program->align, &found);
    if (status != 0)
        return status;
    memcpy(found.data, image, program->image);
    memset(found.data + program->image, 0, program->total - program->image);
    for (uint32_t k = 0; k < program->launches; k++) {
        uint8_t *at = found.data + program->launch[k].at;
        for (uint32_t i = 0; i < program->launch[k].count; i++, at += TW_INSN_BYTES) {
            uint64_t word;
            memcpy(&word, at, sizeof word);
            word = moved(word, found.address);
            memcpy(at, &word, sizeof word);
        }
    }
    tw_platform_write_back(found.data, program->device);
    *memory = found;
    return 0;
}

int tw_run(const tw_memory *memory, tw_launch launch)
{
    int status = tw_platform_start(memory->address + launch.at, launch.count);
    return status != 0 ? status : tw_platform_wait();
}

static uint64_t offset(const tw_rule *rule, uint32_t value)
{
    return (uint64_t)rule->step * (value / rule->block) + (uint64_t)rule->within * (value % rule->block);
}

void tw_redirect(const tw_memory *memory, tw_launch launch, const tw_patch *patches, uint32_t n, const tw_rule *rules,
             uint32_t before, uint32_t after)
{
    uint32_t bytes;
    if (before == after || n == 0)
        return;
    for (uint32_t k = 0; k < n; k++) {
        const tw_rule *rule = &rules[patches[k].rule];
        uint8_t *at = memory->data + launch.at + (size_t)patches[k].at * TW_INSN_BYTES;
        uint64_t word;
        memcpy(&word, at, sizeof word);
        word += (offset(rule, after) - offset(rule, before)) << TW_LOAD_DRAM_BASE_LO;
        memcpy(at, &word, sizeof word);
    }
    bytes = (patches[n - 1].at + 1 - patches[0].at) * TW_INSN_BYTES;
    tw_platform_write_back(memory->data + launch.at + (size_t)patches[0].at * TW_INSN_BYTES, bytes);
}
