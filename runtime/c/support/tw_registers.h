/* A launch through the accelerator's registers, for platforms that have them in the address space. */
#ifndef TW_REGISTERS_H
#define TW_REGISTERS_H

#include "tw_hardware.h"
#include "tw_platform.h"

typedef volatile uint32_t *tw_registers;

/* Cycles without progress after which the accelerator gives up */
#ifndef TW_WATCHDOG
#define TW_WATCHDOG 10000000u
#endif

static inline uint32_t tw_get(tw_registers registers, uint32_t offset)
{
    return registers[offset / 4];
}

static inline void tw_set(tw_registers registers, uint32_t offset, uint32_t value)
{
    registers[offset / 4] = value;
}

/* Whether there is an accelerator, and of this configuration. */
static inline int tw_identify(tw_registers registers, uint64_t fingerprint)
{
    uint32_t version = tw_get(registers, TW_REG_VERSION);
    if (version >> 16 != TW_MAGIC)
        return TW_NO_DEVICE;
    if ((version & 0xffff) != TW_ISA_VERSION || tw_get(registers, TW_REG_FINGERPRINT_LO) != (uint32_t)fingerprint ||
        tw_get(registers, TW_REG_FINGERPRINT_HI) != (uint32_t)(fingerprint >> 32))
        return TW_WRONG_DEVICE;
    return 0;
}

static inline void tw_start(tw_registers registers, uint64_t address, uint32_t count)
{
    tw_set(registers, TW_REG_INSN_COUNT, count);
    tw_set(registers, TW_REG_INSN_ADDR_LO, (uint32_t)address);
    tw_set(registers, TW_REG_INSN_ADDR_HI, (uint32_t)(address >> 32));
    tw_set(registers, TW_REG_WATCHDOG, TW_WATCHDOG);
    tw_set(registers, TW_REG_CONTROL, TW_CONTROL_START);
}

/* 1 where the launch has ended, with its result in `status`. */
static inline int tw_ended(tw_registers registers, int *status)
{
    uint32_t control = tw_get(registers, TW_REG_CONTROL);
    if (!(control & TW_STATUS_DONE))
        return 0;
    *status = control & TW_STATUS_ERROR ? (int)tw_get(registers, TW_REG_ERROR) : 0;
    return 1;
}

#endif
