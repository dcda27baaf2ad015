#include <string.h>

#include "tw_host.h"

/* Copy pieces of so many bytes along a walk of both; starts and steps are bytes. */
void tw_move(const void *x, int32_t x_start, void *y, int32_t y_start, int32_t bytes, const int32_t *plan) {
    struct tw_walk walk = {{0}, {x_start, y_start, 0, 0}};
    int32_t inner = plan[0] > 0; /* the innermost dimension has a loop of its own */
    int32_t count = inner ? plan[1] : 1, x_step = inner ? plan[2] : 0, y_step = inner ? plan[3] : 0;
    do {
        const unsigned char *from = (const unsigned char *)x + walk.offset[0];
        unsigned char *to = (unsigned char *)y + walk.offset[1];
        for (int32_t k = 0; k < count; k++)
            if (bytes == 1)
                to[k * y_step] = from[k * x_step];
            else
                memcpy(to + k * y_step, from + k * x_step, (size_t)bytes);
    } while (inner && tw_next(&walk, 2, plan[0] - 1, plan + 4));
}

/* Every element, of so many bytes, is value. */
void tw_fill(void *y, int32_t size, int32_t bytes, const void *value) {
    unsigned char *to = y;
    if (bytes == 1)
        memset(y, *(const unsigned char *)value, (size_t)size);
    else
        for (int32_t k = 0; k < size; k++) memcpy(to + k * bytes, value, (size_t)bytes);
}

static unsigned char *taken(const unsigned char *x, unsigned char *y, int32_t bytes, int32_t rank,
                            const int32_t *plan) {
    if (!rank) {
        memcpy(y, x, (size_t)bytes);
        return y + bytes;
    }
    for (int32_t k = 1; k <= plan[0]; k++) y = taken(x + plan[k], y, bytes, rank - 1, plan + 1 + plan[0]);
    return y;
}

/* Copy pieces by offsets along each dimension; the plan: their number, then the count and the byte offsets of each. */
void tw_take(const void *x, void *y, int32_t bytes, const int32_t *plan) { taken(x, y, bytes, plan[0], plan + 1); }

/* Parts of windows; the plan: sizes and steps of image, channel, row and column, strips, step, top, left, rows,
 * dilation, entries, group, block, the number of offsets, the offsets. */
void tw_fold_windows(const int8_t *x, int8_t *y, const int32_t *plan, int32_t value) {
    const int32_t *size = plan, *step = plan + 4, *strip = plan + 8, *offsets = plan + 18;
    int32_t rows = strip[4], column_bytes = rows * size[1];
    for (int32_t n = 0; n < size[0]; n++)
        for (int32_t s = 0; s < strip[0]; s++)
            for (int32_t e = 0; e < strip[6]; e++) {
                int32_t at = e / strip[9] * strip[7] + offsets[e % strip[9]];
                int32_t column = at / column_bytes - strip[3];
                int32_t row = at % column_bytes / size[1], channel = at % size[1];
                for (int32_t lane = 0; lane < strip[8]; lane++) {
                    int32_t line = s * strip[1] - strip[2] + row * strip[5];
                    int inside = line >= 0 && line < size[2] && column >= 0 && column < size[3];
                    *y++ = inside ? x[n * step[0] + channel * step[1] + line * step[2] + column * step[3]]
                                  : (int8_t)value;
                    if (++channel < size[1]) continue;
                    channel = 0;
                    if (++row < rows) continue;
                    row = 0;
                    column++;
                }
            }
}

/* The highest byte of each integer is the sign of the one below it. */
void tw_extend(int32_t *y, int32_t size) {
    signed char *byte = (signed char *)y;
    for (int32_t k = 0; k < size; k++, byte += 4) byte[3] = byte[2] < 0 ? -1 : 0;
}
