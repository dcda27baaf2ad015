/* A simulated accelerator: `python -m tilewright.runtime.c.shim PROGRAM` starts PROGRAM and answers it.
 *
 * TW_SIM=IN,OUT names two pipes. Requests are lines on OUT, one answer each comes from IN: `open FINGERPRINT`,
 * `memory SIZE ALIGN`, `run ADDRESS COUNT`. Memory is a file that both map. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tw_platform.h"

static FILE *answers, *requests;
static int result; /* of the launch that was started */

/* The status that begins an answer; what follows it is in `rest`. */
static int answer(char *rest, size_t size)
{
    char line[4200];
    int status, used = 0;
    fflush(requests);
    if (fgets(line, sizeof line, answers) == NULL || sscanf(line, "%d %n", &status, &used) != 1)
        return TW_NO_DEVICE;
    line[strcspn(line, "\n")] = 0;
    if (strlen(line + used) >= size)
        return TW_NO_DEVICE;
    strcpy(rest, line + used);
    return status;
}

int tw_platform_open(uint64_t fingerprint)
{
    char rest[8];
    int in, out;
    const char *pipes = getenv("TW_SIM");
    if (requests == NULL) {
        if (pipes == NULL || sscanf(pipes, "%d,%d", &in, &out) != 2) {
            fputs("start this program by python -m tilewright.runtime.c.shim\n", stderr);
            return TW_NO_DEVICE;
        }
        answers = fdopen(in, "r");
        requests = fdopen(out, "w");
        if (answers == NULL || requests == NULL)
            return TW_NO_DEVICE;
    }
    fprintf(requests, "open %016" PRIx64 "\n", fingerprint);
    return answer(rest, sizeof rest);
}

int tw_platform_memory(size_t size, size_t align, tw_memory *memory)
{
    char path[4096];
    int status, used = 0, file;
    void *data;
    fprintf(requests, "memory %zu %zu\n", size, align);
    status = answer(path, sizeof path);
    if (status != 0)
        return status;
    if (sscanf(path, "%" SCNu64 " %n", &memory->address, &used) != 1)
        return TW_NO_DEVICE;
    file = open(path + used, O_RDWR);
    if (file < 0)
        return TW_NO_MEMORY;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (data == MAP_FAILED)
        return TW_NO_MEMORY;
    memory->data = data;
    return 0;
}

void tw_platform_write_back(const void *data, size_t size)
{
    (void)data;
    (void)size;
}

void tw_platform_invalidate(void *data, size_t size)
{
    (void)data;
    (void)size;
}

int tw_platform_start(uint64_t address, uint32_t count)
{
    char rest[8];
    fprintf(requests, "run %" PRIu64 " %" PRIu32 "\n", address, count);
    result = answer(rest, sizeof rest);
    return 0;
}

int tw_platform_wait(void)
{
    return result;
}
