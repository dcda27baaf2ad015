/* Layers in float32 whose products are added one after the other: compile without contraction to fused operations. */
#include "tw_host.h"

/* The largest of each window, or the mean; p: planes, height, width, rows and columns of windows, height and width of a
 * window, strides, pads at the top and left */
void tw_float_pool(const float *x, float *y, int32_t largest, int32_t padding_counts, int32_t by_columns,
                   const int32_t *p) {
    for (int32_t plane = 0; plane < p[0]; plane++, x += p[1] * p[2])
        for (int32_t row = 0; row < p[3]; row++)
            for (int32_t column = 0; column < p[4]; column++) {
                int32_t top = row * p[7] - p[9], left = column * p[8] - p[10];
                int32_t first = top < 0 ? 0 : top, from = left < 0 ? 0 : left; /* rows and columns inside the image */
                int32_t rows = (int32_t)tw_clamp(top + p[5] - first, 0, p[1] - first);
                int32_t columns = (int32_t)tw_clamp(left + p[6] - from, 0, p[2] - from), count = rows * columns;
                float best = -TW_INFINITY, sum = 0.0f, part = 0.0f;
                for (int32_t k = 0; k < count; k++) {
                    int32_t i = by_columns ? k % rows : k / columns, j = by_columns ? k / rows : k % columns;
                    float value = x[(first + i) * p[2] + from + j];
                    if (best == best && (value > best || value != value)) best = value;
                    part += value;
                    if (k + 1 == count || (by_columns && i + 1 == rows)) {
                        sum += part;
                        part = 0.0f;
                    }
                }
                *y++ = largest ? best : sum / (float)(padding_counts ? p[5] * p[6] : count);
            }
}

/* Sums of four neighbours: per row and per column of the result two indices, and their weights; p: planes, height,
 * width, rows, columns */
void tw_float_resize(const float *x, float *y, const int32_t *rows, const float *row_weights, const int32_t *columns,
                     const float *column_weights, const int32_t *p) {
    for (int32_t plane = 0; plane < p[0]; plane++, x += p[1] * p[2])
        for (int32_t row = 0; row < p[3]; row++)
            for (int32_t column = 0; column < p[4]; column++) {
                float total = 0.0f;
                for (int32_t k = 0; k < 4; k++) {
                    int32_t i = 2 * row + k / 2, j = 2 * column + k % 2;
                    float part = x[rows[i] * p[2] + columns[j]] * (column_weights[j] * row_weights[i]);
                    total = k ? total + part : part;
                }
                *y++ = total;
            }
}

static float pixel(const float *x, const int32_t *p, int32_t c, int32_t row, int32_t column) {
    int inside = row >= 0 && row < p[2] && column >= 0 && column < p[3];
    return inside ? x[(c * p[2] + row) * p[3] + column] : 0.0f;
}

/* p as of tw_conv2d, without the zero point; transposed: the weights' second dimension is the outputs of a group */
void tw_float_conv2d(const float *x, float *y, const float *weights, const float *bias, const int32_t *p) {
    int32_t of_group = p[4] / p[16];
    for (int32_t n = 0; n < p[0]; n++, x += p[1] * p[2] * p[3])
        for (int32_t o = 0; o < p[4]; o++)
            for (int32_t row = 0; row < p[5]; row++)
                for (int32_t column = 0; column < p[6]; column++) {
                    float sum = 0.0f;
                    for (int32_t i = 0; i < p[8]; i++)
                        for (int32_t j = 0; j < p[9]; j++)
                            for (int32_t c = 0; c < p[7]; c++) {
                                int32_t v = row * p[10] - p[12] + i * p[14], h = column * p[11] - p[13] + j * p[15];
                                float value = pixel(x, p, o / of_group * p[7] + c, v, h);
                                float product = weights[((o * p[7] + c) * p[8] + i) * p[9] + j] * value;
                                sum += product;
                            }
                    *y++ = sum + bias[o];
                }
}

void tw_float_conv_transpose2d(const float *x, float *y, const float *weights, const float *bias, const int32_t *p) {
    int32_t of_group = p[4] / p[16], channels = p[1] / p[16]; /* of a group */
    for (int32_t n = 0; n < p[0]; n++, x += p[1] * p[2] * p[3])
        for (int32_t o = 0; o < p[4]; o++)
            for (int32_t row = p[12]; row < p[12] + p[5]; row++)
                for (int32_t column = p[13]; column < p[13] + p[6]; column++) {
                    float sum = 0.0f;
                    for (int32_t tap = p[8] * p[9] - 1; tap >= 0; tap--) { /* the last tap is that of the first pixel */
                        int32_t v = row - tap / p[9] * p[14], h = column - tap % p[9] * p[15];
                        int outside = v < 0 || h < 0 || v / p[10] >= p[2] || h / p[11] >= p[3];
                        if (outside || v % p[10] || h % p[11]) continue;
                        for (int32_t k = 0; k < channels; k++) {
                            int32_t c = o / of_group * channels + k;
                            float value = pixel(x, p, c, v / p[10], h / p[11]);
                            float product = weights[(c * of_group + o % of_group) * p[8] * p[9] + tap] * value;
                            sum += product;
                        }
                    }
                    *y++ = sum + bias[o];
                }
}

/* z = sums of x * y along a walk of the matrices of both */
void tw_float_matmul(const float *x, const float *y, float *z, int32_t rows, int32_t columns, int32_t inner,
                     const int32_t *plan) {
    struct tw_walk walk = {{0}, {0}};
    do {
        for (int32_t row = 0; row < rows; row++)
            for (int32_t column = 0; column < columns; column++) {
                const float *a = x + walk.offset[0] + row * inner, *b = y + walk.offset[1] + column;
                float sum = 0.0f;
                for (int32_t k = 0; k < inner; k++) {
                    float product = a[k] * b[k * columns];
                    sum += product;
                }
                *z++ = sum;
            }
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}
