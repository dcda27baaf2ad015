/* Operators of Deeploy's dialect: integers alone. Sums that are larger than 64 bits wrap. */
#include "tw_host.h"

/* z = sums of x * y, int32, along a walk of the matrices of all three */
void tw_integer_matmul(const void *x, int32_t x_type, const void *y, int32_t y_type, int32_t *z, int32_t rows,
                       int32_t columns, int32_t inner, const int32_t *plan) {
    struct tw_walk walk = {{0}, {0}};
    do {
        for (int32_t row = 0; row < rows; row++)
            for (int32_t column = 0; column < columns; column++) {
                uint32_t sum = 0;
                for (int32_t k = 0; k < inner; k++) {
                    uint32_t a = (uint32_t)tw_load(x, x_type, walk.offset[0] + row * inner + k);
                    sum += a * (uint32_t)tw_load(y, y_type, walk.offset[1] + k * columns + column);
                }
                *z++ = (int32_t)sum;
            }
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* p: shift, low, high, zero point */
void tw_requant_shift(const int32_t *x, const int32_t *factor, const int32_t *offset, void *z, int32_t type,
                      const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    int64_t half = ((int64_t)1 << p[0]) >> 1;
    int32_t at = 0;
    do {
        int64_t sum = (int64_t)x[walk.offset[0]] * factor[walk.offset[1]] + offset[walk.offset[2]] + half;
        tw_store(z, type, at++, tw_clamp(tw_shift(sum, p[0]), p[1], p[2]) + p[3]);
    } while (tw_next(&walk, 3, plan[0], plan + 1));
}

/* a * b, which wraps */
static int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static int64_t halved(int64_t value, int64_t largest, const int32_t *p) {
    int64_t below = value - largest, halvings = tw_clamp(-below / p[3], 0, 31), t = below + halvings * p[3] + p[1];
    return tw_shift((int64_t)((uint64_t)times(p[0], times(t, t)) + (uint64_t)(int64_t)p[2]), (int32_t)halvings);
}

/* p: quadratic, linear, constant, period, levels, multiplier, exponent, zero point, low, high */
void tw_integer_softmax(const void *x, int32_t type, int8_t *y, int32_t rows, int32_t size, const int32_t *p) {
    for (int32_t start = 0; rows; rows--, start += size) {
        int64_t largest = INT64_MIN;
        uint64_t sum = 0;
        for (int32_t k = start; k < start + size; k++) {
            int64_t value = tw_load(x, type, k);
            largest = value > largest ? value : largest;
        }
        for (int32_t k = start; k < start + size; k++) sum += (uint64_t)halved(tw_load(x, type, k), largest, p);
        for (int32_t k = start; k < start + size; k++) {
            int64_t part = times(halved(tw_load(x, type, k), largest, p), p[4] - 1);
            int64_t share = sum ? tw_floor_divide(part, (int64_t)sum) : 0;
            y[k] = tw_requantise(share, p[5], p[6], p[7], p[8], p[9]);
        }
    }
}

/* the largest number whose square is at most x */
static int64_t root(uint64_t x) {
    uint64_t found = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit; bit >>= 1)
        if ((found + bit) * (found + bit) <= x) found += bit;
    return (int64_t)found;
}

/* bias may be a null pointer; p: shift, low, high, zero point */
void tw_integer_norm(const void *x, int32_t type, const int32_t *weight, const int32_t *bias, int8_t *y, int32_t rows,
                     int32_t size, const int32_t *p) {
    for (int32_t start = 0; rows; rows--, start += size) {
        int64_t mean = 0;
        uint64_t squares = 0;
        for (int32_t k = 0; k < size && bias; k++) mean += tw_load(x, type, start + k) - p[3];
        mean /= size;
        for (int32_t k = 0; k < size; k++) {
            int64_t centred = tw_load(x, type, start + k) - p[3] - mean;
            squares += (uint64_t)times(centred, centred);
        }
        int64_t divisor = root(squares / (uint64_t)size + 1);
        for (int32_t k = 0; k < size; k++) {
            int64_t centred = tw_load(x, type, start + k) - p[3] - mean;
            int64_t found = times(centred, weight[k]) / divisor + (bias ? bias[k] : 0);
            y[start + k] = (int8_t)tw_clamp(tw_shift(found, p[0]), p[1], p[2]);
        }
    }
}
