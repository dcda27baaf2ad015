/* What a platform gives to a network: memory that the accelerator sees, too, the upkeep of caches, and launches. */
#ifndef TW_PLATFORM_H
#define TW_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

/* What functions return: 0, a code of the accelerator's ERROR register (TW_ERROR_..., tw_hardware.h), or one of these */
enum {
    TW_NO_DEVICE = 0x100, /* there is no accelerator, or it does not answer */
    TW_WRONG_DEVICE,      /* it has another configuration than the network, or another instruction set */
    TW_NO_MEMORY,         /* the platform has less memory than the network needs */
    TW_HANGS,             /* a launch does not end */
    TW_BAD_INPUT,       /* an input is outside the values that the network was made for */
    TW_CLOSED             /* the network was not opened, or opening it failed */
};

/* The same bytes for both: the processor's pointer, the accelerator's address */
typedef struct {
    uint8_t *data;
    uint64_t address;
} tw_memory;

/* Find the accelerator, and check that its configuration has this fingerprint. */
int tw_platform_open(uint64_t fingerprint);

/* Give `size` bytes whose address and pointer are multiples of `align`, once per network. */
int tw_platform_memory(size_t size, size_t align, tw_memory *memory);

/* Before a launch: what the processor wrote gets to where the accelerator reads it. */
void tw_platform_write_back(const void *data, size_t size);

/* After a launch: the processor forgets what it knew of what the accelerator wrote. */
void tw_platform_invalidate(void *data, size_t size);

/* Start the `count` instructions at an address of the accelerator. */
int tw_platform_start(uint64_t address, uint32_t count);

/* Wait for their end: 0, or what went wrong. */
int tw_platform_wait(void);

#endif
