/* No operating system: registers at TW_REGISTERS, memory whose addresses are those of the accelerator.
 *
 * Memory is TW_MEMORY_BYTES at TW_ARENA, an address or a symbol of the linker script; without it an array, in section
 * TW_SECTION where that is defined. A processor whose caches the accelerator does not see needs TW_WRITE_BACK(data,
 * size) and TW_INVALIDATE(data, size), such as Xil_DCacheFlushRange and Xil_DCacheInvalidateRange. */
#ifdef TW_INCLUDE /* a header that these are declared in */
#include TW_INCLUDE
#endif

#include "tw_registers.h"

#ifndef TW_REGISTERS
#error "define TW_REGISTERS, the address of the accelerator's registers, as -DTW_REGISTERS=0x43c00000"
#endif
#ifndef TW_MEMORY_BYTES
#error "define TW_MEMORY_BYTES, at least NETWORK_MEMORY + NETWORK_ALIGN for each network"
#endif
#ifndef TW_WRITE_BACK
#define TW_WRITE_BACK(data, size) ((void)(data), (void)(size))
#endif
#ifndef TW_INVALIDATE
#define TW_INVALIDATE(data, size) ((void)(data), (void)(size))
#endif
#ifndef TW_LOOKS /* at CONTROL until a launch is taken to hang; the accelerator's watchdog comes first */
#define TW_LOOKS 0xffffffffu
#endif

#ifdef TW_ARENA
static uint8_t *const arena = (uint8_t *)(uintptr_t)(TW_ARENA);
#else
#ifdef TW_SECTION
__attribute__((section(TW_SECTION)))
#endif
static uint64_t storage[(TW_MEMORY_BYTES + 7) / 8];
static uint8_t *const arena = (uint8_t *)storage;
#endif

static tw_registers const registers = (tw_registers)(uintptr_t)(TW_REGISTERS);
static size_t used;

int tw_platform_open(uint64_t fingerprint)
{
    return tw_identify(registers, fingerprint);
}

int tw_platform_memory(size_t size, size_t align, tw_memory *memory)
{
    uintptr_t start = ((uintptr_t)arena + used + align - 1) / align * align;
    size_t end = (size_t)(start - (uintptr_t)arena) + size;
    if (end > TW_MEMORY_BYTES)
        return TW_NO_MEMORY;
    used = end;
    memory->data = (uint8_t *)start;
    memory->address = start;
    return 0;
}

void tw_platform_write_back(const void *data, size_t size)
{
    TW_WRITE_BACK(data, size);
}

void tw_platform_invalidate(void *data, size_t size)
{
    TW_INVALIDATE(data, size);
}

int tw_platform_start(uint64_t address, uint32_t count)
{
    __sync_synchronize();
    tw_start(registers, address, count);
    return 0;
}

int tw_platform_wait(void)
{
    int status = TW_HANGS;
    for (uint32_t k = 0; k < TW_LOOKS && !tw_ended(registers, &status); k++)
        ;
    __sync_synchronize();
    return status;
}
