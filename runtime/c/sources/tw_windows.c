/* Operators on windows of images, and on all elements along axes. Images are planes of height times width. */
#include "tw_host.h"

#define POSITION_BITS 10 /* fraction of the weights of neighbours */

static int64_t mean_of(int32_t function, int64_t sum, int64_t count) {
    if (sum > 0 || function == TW_MEAN_UP) return tw_floor_divide(sum + count / 2, count);
    return -((count / 2 - sum) / count);
}

/* p: planes, height, width, rows and columns of windows, height and width of a window, strides, pads at the top and
 * left, low, high, and of rescaled sums x zero point, zero point, multiplier, exponent */
void tw_pool(const int8_t *x, int8_t *y, int32_t function, const int32_t *p) {
    for (int32_t plane = 0; plane < p[0]; plane++, x += p[1] * p[2])
        for (int32_t row = 0; row < p[3]; row++)
            for (int32_t column = 0; column < p[4]; column++) {
                int32_t top = row * p[7] - p[9], left = column * p[8] - p[10];
                int32_t largest = -128, sum = 0, count = 0;
                for (int32_t i = top < 0 ? 0 : top; i < top + p[5] && i < p[1]; i++)
                    for (int32_t j = left < 0 ? 0 : left; j < left + p[6] && j < p[2]; j++) {
                        int32_t value = x[i * p[2] + j];
                        largest = value > largest ? value : largest;
                        sum += value;
                        count++;
                    }
                int64_t found = largest;
                if (function == TW_RESCALED_TWICE || function == TW_RESCALED_ONCE) {
                    found = (int64_t)sum - (int64_t)count * p[13];
                    found = tw_rescale(found, p[15], p[16], function == TW_RESCALED_ONCE) + p[14];
                } else if (function != TW_LARGEST)
                    found = mean_of(function, sum, count);
                *y++ = (int8_t)tw_clamp(found, p[11], p[12]);
            }
}

/* Means of four neighbours: per row and per column of the result the lower index, the upper one and its weight in
 * 1 / 1024; p: planes, height, width, rows, columns */
void tw_resize(const int8_t *x, int8_t *y, const int32_t *p, const int32_t *rows, const int32_t *columns) {
    const int32_t one = 1 << POSITION_BITS, half = 1 << (2 * POSITION_BITS - 1);
    for (int32_t plane = 0; plane < p[0]; plane++, x += p[1] * p[2])
        for (int32_t row = 0; row < p[3]; row++)
            for (int32_t column = 0; column < p[4]; column++) {
                const int32_t *v = rows + 3 * row, *h = columns + 3 * column;
                const int8_t *upper = x + v[0] * p[2], *lower = x + v[1] * p[2];
                int64_t total = (int64_t)upper[h[0]] * (one - v[2]) * (one - h[2]);
                total += (int64_t)lower[h[0]] * v[2] * (one - h[2]);
                total += (int64_t)upper[h[1]] * (one - v[2]) * h[2];
                total += (int64_t)lower[h[1]] * v[2] * h[2];
                *y++ = (int8_t)(total > 0 ? (total + half) >> 20 : -((half - total) >> 20));
            }
}

/* In float32, with the weights beside the indices; int8 values by type, to which the offset is added. */
void tw_resize_real(const void *x, void *y, int32_t type, int32_t offset, const int32_t *p, const int32_t *rows,
                    const float *down, const int32_t *columns, const float *across) {
    const float *reals = x;
    const int8_t *bytes = x;
    int32_t at = 0;
    for (int32_t plane = 0; plane < p[0]; plane++)
        for (int32_t row = 0; row < p[3]; row++)
            for (int32_t column = 0; column < p[4]; column++, at++) {
                float total = 0.0f, d = down[row], a = across[column];
                for (int32_t k = 0; k < 4; k++) { /* upper left, lower left, upper right, lower right */
                    int32_t from = (plane * p[1] + rows[2 * row + k % 2]) * p[2] + columns[2 * column + k / 2];
                    float value = type == TW_FLOAT32 ? reals[from] : (float)(bytes[from] + offset);
                    float product = value * (k % 2 ? d : 1.0f - d) * (k / 2 ? a : 1.0f - a);
                    total = k ? total + product : product;
                }
                if (type == TW_FLOAT32)
                    ((float *)y)[at] = total;
                else
                    ((int8_t *)y)[at] = (int8_t)((int32_t)(total + 0.5f) - offset);
            }
}

/* zero_point + R(sum(x - x_zero_point)); walks as of tw_reduce; p: x zero point, zero point, multiplier, exponent,
 * whether it is rounded once */
void tw_mean(const int8_t *x, int8_t *y, const int32_t *kept, const int32_t *reduced, const int32_t *p) {
    struct tw_walk outer = {{0}, {0}};
    do {
        struct tw_walk walk = {{0}, {outer.offset[0], 0, 0, 0}};
        int64_t sum = 0;
        do sum += x[walk.offset[0]] - p[0];
        while (tw_next(&walk, 1, reduced[0], reduced + 1));
        *y++ = (int8_t)tw_clamp(tw_rescale(sum, p[2], p[3], p[4]) + p[1], -128, 127);
    } while (tw_next(&outer, 1, kept[0], kept + 1));
}
