/* Numbers of any type: comparisons, choices and positions. */
#include <string.h>

#include "tw_host.h"

/* An integer whose order is that of element k; the largest for NaN, which is behind all numbers. */
static int64_t key(const void *x, int32_t type, int32_t k) {
    float number;
    int32_t bits;
    if (type != TW_FLOAT32) return tw_load(x, type, k);
    memcpy(&number, (const char *)x + 4 * (int64_t)k, sizeof number);
    memcpy(&bits, &number, sizeof bits);
    if (number != number) return INT64_MAX;
    return bits < 0 ? -(int64_t)(bits & INT32_MAX) : bits;
}

/* The accepted orders, as above, and 8 for numbers of which one is NaN. */
void tw_compare(const void *x, const void *y, int32_t type, uint8_t *z, const int32_t *plan, int32_t accepted) {
    struct tw_walk walk = {{0}, {0}};
    do {
        int64_t a = key(x, type, walk.offset[0]), b = key(y, type, walk.offset[1]);
        int32_t order = a < b ? 1 : a == b ? 2 : 4;
        if (type == TW_FLOAT32 && (a == INT64_MAX || b == INT64_MAX)) order = 8;
        *z++ = (order & accepted) != 0;
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* Pieces of so many bytes of x where the condition holds, else of y, along a walk of all three. */
void tw_select(const uint8_t *condition, const void *x, const void *y, void *z, int32_t bytes, const int32_t *plan) {
    struct tw_walk walk = {{0}, {0}};
    char *to = z;
    do {
        int first = condition[walk.offset[0]];
        const char *from = first ? x : y;
        memcpy(to, from + walk.offset[first ? 1 : 2], (size_t)bytes);
        to += bytes;
    } while (tw_next(&walk, 3, plan[0], plan + 1));
}

/* The position of the largest, or smallest, of each row, of several the first. */
void tw_arg_max(const void *x, int32_t type, void *y, int32_t y_type, int32_t rows, int32_t size, int32_t inner,
                int32_t smallest) {
    for (int32_t row = 0; row < rows * inner; row++) {
        int32_t start = row / inner * size * inner + row % inner, best = 0;
        int64_t most = key(x, type, start);
        for (int32_t k = 1; k < size; k++) {
            int64_t found = key(x, type, start + k * inner);
            int not_number = type == TW_FLOAT32 && found == INT64_MAX;
            if (type == TW_FLOAT32 && most == INT64_MAX) break; /* the first NaN is the position of both */
            if (smallest ? found < most || not_number : found > most) {
                best = k;
                most = found;
            }
        }
        tw_store(y, y_type, row, best);
    }
}

/* The largest of each row, or their positions, the largest first, of equal ones the first. */
void tw_top_k(const void *x, int32_t type, void *y, int32_t rows, int32_t size, int32_t count, int32_t positions) {
    int32_t bytes = type == TW_INT8 ? 1 : type == TW_INT64 ? 8 : 4;
    int32_t *place = y;
    char *to = y;
    for (int32_t row = 0; row < rows; row++) {
        int64_t last = INT64_MAX;
        int32_t last_at = -1, start = row * size;
        for (int32_t n = 0; n < count; n++) {
            int64_t most = INT64_MIN;
            int32_t best = -1;
            for (int32_t k = 0; k < size; k++) { /* the largest of those behind the last one */
                int64_t found = key(x, type, start + k);
                int behind = found < last || (found == last && k > last_at);
                if (behind && (best < 0 || found > most)) {
                    most = found;
                    best = k;
                }
            }
            last = most;
            last_at = best;
            if (positions)
                *place++ = best;
            else {
                memcpy(to, (const char *)x + (int64_t)(start + best) * bytes, (size_t)bytes);
                to += bytes;
            }
        }
    }
}

/* For each of outer parts of x pieces at the positions where; the plan: their number of dimensions, then of each the
 * least position, 0 or minus the size, the size, and the bytes from one to the next; 0 for a position that is not in x */
int tw_gather(const void *x, const void *where, int32_t type, void *y, int32_t outer, int32_t outer_bytes,
              int32_t count, int32_t bytes, const int32_t *plan) {
    char *to = y;
    for (int32_t part = 0; part < outer; part++)
        for (int32_t row = 0; row < count; row++) {
            const char *from = (const char *)x + part * outer_bytes;
            for (int32_t k = 0; k < plan[0]; k++) {
                int64_t index = tw_load(where, type, row * plan[0] + k);
                const int32_t *axis = plan + 1 + 3 * k;
                if (index < axis[0] || index >= axis[1]) return 0;
                from += (index < 0 ? index + axis[1] : index) * axis[2];
            }
            memcpy(to, from, (size_t)bytes);
            to += bytes;
        }
    return 1;
}
