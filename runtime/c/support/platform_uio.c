/* Linux: registers of a UIO device or of /dev/mem, memory of a u-dma-buf device. The environment names them:
 *
 * TW_REGISTERS     /dev/uio0: the file that has the page of registers, from byte TW_REGISTERS_AT (0) on
 * TW_INTERRUPT     a UIO device that has the interrupt; without one CONTROL is read every 0.1 ms
 * TW_MEMORY        /dev/udmabuf0: the u-dma-buf device
 * TW_MEMORY_FACTS  its folder, /sys/class/u-dma-buf/udmabuf0 */
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
#define LOOK 20        /* milliseconds between two reads of CONTROL where there is an interrupt: one may be lost */
#define PAUSE 100000   /* nanoseconds between them where there is none */
#define SECONDS 30     /* that a launch may take */
#define FACTS "/sys/class/u-dma-buf/udmabuf0"

static tw_registers registers;
static int interrupt = -1;
static uint8_t *buffer;
static uint64_t buffer_address, buffer_size, used;

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

/* A file of facts about the memory. */
static FILE *fact(const char *name, const char *mode)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/%s", setting("TW_MEMORY_FACTS", FACTS), name);
    return n < 0 || (size_t)n >= sizeof path ? NULL : fopen(path, mode);
}

static int number(const char *name, uint64_t *value)
{
    char text[32];
    FILE *file = fact(name, "r");
    int known = file != NULL && fgets(text, sizeof text, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (known)
        *value = strtoull(text, NULL, 0);
    return known;
}

static void *map(const char *path, size_t size, off_t at)
{
    void *data = MAP_FAILED;
    int file = open(path, O_RDWR);
    if (file >= 0) {
        data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
        close(file);
    }
    return data == MAP_FAILED ? NULL : data;
}

int tw_platform_open(uint64_t fingerprint)
{
    const char *path = setting("TW_INTERRUPT", "");
    if (registers == NULL)
        registers = map(setting("TW_REGISTERS", "/dev/uio0"), PAGE,
                        (off_t)strtoull(setting("TW_REGISTERS_AT", "0"), NULL, 0));
    if (interrupt < 0 && *path != 0 && (interrupt = open(path, O_RDWR)) < 0)
        return TW_NO_DEVICE;
    return registers == NULL ? TW_NO_DEVICE : tw_identify(registers, fingerprint);
}

int tw_platform_memory(size_t size, size_t align, tw_memory *memory)
{
    uint64_t start;
    if (buffer == NULL) {
        if (!number("phys_addr", &buffer_address) || !number("size", &buffer_size))
            return TW_NO_MEMORY;
        buffer = map(setting("TW_MEMORY", "/dev/udmabuf0"), (size_t)buffer_size, 0);
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

static void put(const char *name, uint64_t value)
{
    FILE *file = fact(name, "w");
    if (file == NULL)
        return;
    fprintf(file, "%" PRIu64 "\n", value);
    fclose(file);
}

/* Pass part of the memory to the processor or to the device; a memory without such files is not cached. */
static void pass(const char *to, const void *data, size_t size)
{
    put("sync_offset", (uint64_t)((const uint8_t *)data - buffer));
    put("sync_size", size);
    put("sync_direction", 0); /* both */
    put(to, 1);
}

void tw_platform_write_back(const void *data, size_t size)
{
    pass("sync_for_device", data, size);
}

void tw_platform_invalidate(void *data, size_t size)
{
    pass("sync_for_cpu", data, size);
}

int tw_platform_start(uint64_t address, uint32_t count)
{
    __sync_synchronize();
    tw_start(registers, address, count);
    return 0;
}

/* Until the interrupt comes, or a while. */
static int rest(void)
{
    struct pollfd ready = {interrupt, POLLIN, 0};
    struct timespec pause = {0, PAUSE};
    uint32_t count = 1;
    if (interrupt < 0) {
        nanosleep(&pause, NULL);
        return 1;
    }
    return write(interrupt, &count, sizeof count) == sizeof count &&
           (poll(&ready, 1, LOOK) <= 0 || read(interrupt, &count, sizeof count) == sizeof count);
}

int tw_platform_wait(void)
{
    struct timespec start, now;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        if (tw_ended(registers, &status))
            return status;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > SECONDS)
            break;
        if (!rest())
            return TW_NO_DEVICE;
    }
    tw_set(registers, TW_REG_CONTROL, TW_CONTROL_RESET);
    return TW_HANGS;
}
