/* Linux: registers and interrupt of a UIO device, memory of a u-dma-buf device.
 *
 * TW_UIO names the first (/dev/uio0), TW_DMABUF the second (udmabuf0) in the environment; TW_DEV and TW_SYS are the
 * folders they are in. A UIO device of one page of registers needs a node in the device tree, `generic-uio`, as does
 * u-dma-buf, a kernel module (docs/c.md). The interrupt is optional: CONTROL is read again after 20 ms in any case. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tw_registers.h"

#define PAGE 4096u
#define LOOK 20      /* milliseconds between two reads of CONTROL */
#define SECONDS 30.0 /* that a launch may take */

static tw_registers registers;
static int device = -1;
static uint8_t *buffer;
static uint64_t buffer_address, buffer_size, used;

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

/* The file `name` of the u-dma-buf device in sysfs. */
static FILE *attribute(const char *name, const char *mode)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/class/u-dma-buf/%s/%s", setting("TW_SYS", "/sys"),
                     setting("TW_DMABUF", "udmabuf0"), name);
    return n < 0 || (size_t)n >= sizeof path ? NULL : fopen(path, mode);
}

static int number(const char *name, uint64_t *value)
{
    char text[32];
    FILE *file = attribute(name, "r");
    int known = file != NULL && fgets(text, sizeof text, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (known)
        *value = strtoull(text, NULL, 0);
    return known;
}

static void *map(const char *name, size_t size, int *file)
{
    char path[512];
    void *data;
    int n = snprintf(path, sizeof path, "%s/%s", setting("TW_DEV", "/dev"), name);
    *file = n < 0 || (size_t)n >= sizeof path ? -1 : open(path, O_RDWR);
    if (*file < 0)
        return NULL;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    return data == MAP_FAILED ? NULL : data;
}

int tw_platform_open(uint64_t fingerprint)
{
    if (registers == NULL)
        registers = map(setting("TW_UIO", "uio0"), PAGE, &device);
    return registers == NULL ? TW_NO_DEVICE : tw_identify(registers, fingerprint);
}

int tw_platform_memory(size_t size, size_t align, tw_memory *memory)
{
    uint64_t start;
    int file;
    if (buffer == NULL) {
        if (!number("phys_addr", &buffer_address) || !number("size", &buffer_size))
            return TW_NO_MEMORY;
        buffer = map(setting("TW_DMABUF", "udmabuf0"), (size_t)buffer_size, &file);
        if (buffer == NULL)
            return TW_NO_MEMORY;
    }
    start = (buffer_address + used + align - 1) / align * align - buffer_address;
    if (start > buffer_size || size > buffer_size - start)
        return TW_NO_MEMORY;
    used = start + size;
    memory->data = buffer + start;
    memory->address = buffer_address + start;
    return 0;
}

/* Ask u-dma-buf for `what`; the direction 0 stands for both. Where that fails, the memory is not cached. */
static void sync_for(const char *what, const void *data, size_t size)
{
    FILE *file = attribute(what, "w");
    if (file == NULL)
        return;
    fprintf(file, "0x%08" PRIX32 "%08" PRIX32 "\n", (uint32_t)((const uint8_t *)data - buffer),
            (uint32_t)(size + 15) / 16 * 16 | 1u);
    fclose(file);
}

void tw_platform_write_back(const void *data, size_t size)
{
    sync_for("sync_for_device", data, size);
}

void tw_platform_invalidate(void *data, size_t size)
{
    sync_for("sync_for_cpu", data, size);
}

int tw_platform_start(uint64_t address, uint32_t count)
{
    __sync_synchronize();
    tw_start(registers, address, count);
    return 0;
}

int tw_platform_wait(void)
{
    struct timespec start, now;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        struct pollfd ready = {device, POLLIN, 0};
        uint32_t count = 1;
        if (tw_ended(registers, &status))
            return status;
        if (write(device, &count, sizeof count) == sizeof count && poll(&ready, 1, LOOK) > 0 &&
            read(device, &count, sizeof count) != sizeof count)
            return TW_NO_DEVICE;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) < SECONDS);
    if (tw_ended(registers, &status))
        return status;
    tw_set(registers, TW_REG_CONTROL, TW_CONTROL_RESET);
    return TW_HANGS;
}
