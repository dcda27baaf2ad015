/* Operators on two arrays that broadcast, along a walk of both; p are the numbers of the operator. */
#include "tw_host.h"

/* p: zero points of x, y and the output, three multipliers, three exponents, sign, shift, low, high */
void tw_add(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    int32_t unit = 1 << p[10];
    do {
        int64_t first = tw_scale((x[walk.offset[0]] - p[0]) * unit, p[3], p[6]);
        int64_t second = tw_scale((y[walk.offset[1]] - p[1]) * unit, p[4], p[7]);
        *z++ = tw_requantise(first + p[9] * second, p[5], p[8], p[2], p[11], p[12]);
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* p: three zero points, multiplier, exponent, low, high, whether it is rounded once */
void tw_multiply(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    do {
        int32_t product = (x[walk.offset[0]] - p[0]) * (y[walk.offset[1]] - p[1]);
        *z++ = (int8_t)tw_clamp(tw_rescale(product, p[3], p[4], p[7]) + p[2], p[5], p[6]);
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

void tw_divide(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    do {
        int32_t a = x[walk.offset[0]] - p[0], b = y[walk.offset[1]] - p[1];
        int64_t found = a < 0 ? -65536 : a > 0 ? 65536 : 0; /* by 0: beyond every int8 value */
        if (b < 0) {
            a = -a;
            b = -b;
        }
        if (b) {
            int32_t headroom = 32 - tw_bits((uint64_t)b), spare = 31 - tw_bits((uint64_t)(a < 0 ? -a - 1 : a));
            int64_t inverse = tw_reciprocal(((int64_t)b << headroom) - ((int64_t)1 << 31), 31);
            int64_t quotient = tw_high_product(a * ((int64_t)1 << spare), inverse, 31);
            int64_t right = tw_clamp(31 - headroom + spare - p[4], 0, 62);
            found = tw_divide_by_power(tw_high_product(quotient, p[3], 31), (int32_t)right);
        }
        *z++ = (int8_t)tw_clamp(found + p[2], p[5], p[6]);
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* The larger value of each pair times sign: the smaller one for -1. */
void tw_extreme(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, int32_t sign) {
    struct tw_walk walk = {{0}, {0}};
    do {
        int8_t a = x[walk.offset[0]], b = y[walk.offset[1]];
        *z++ = a * sign > b * sign ? a : b;
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* table[256 * x + y], counted from the smallest values of their types */
void tw_lookup_pair(const void *x, int32_t x_type, const void *y, int32_t y_type, int8_t *z, const int32_t *plan,
                    const int8_t *table) {
    struct tw_walk walk = {{0}, {0}};
    int32_t x_least = x_type == TW_INT8 ? 128 : 0, y_least = y_type == TW_INT8 ? 128 : 0;
    do {
        int32_t row = (int32_t)tw_load(x, x_type, walk.offset[0]) + x_least;
        *z++ = table[256 * row + (int32_t)tw_load(y, y_type, walk.offset[1]) + y_least];
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* p: three zero points, two multipliers, two exponents */
void tw_prelu(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    do {
        int32_t d = x[walk.offset[0]] - p[0], below = d < 0;
        int32_t value = below ? d * (y[walk.offset[1]] - p[1]) : d;
        *z++ = tw_requantise(value, p[3 + below], p[5 + below], p[2], -128, 127);
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* p: three zero points, three multipliers, three exponents, shift */
void tw_squared_difference(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    int32_t unit = 1 << p[9];
    do {
        int64_t first = tw_scale((x[walk.offset[0]] - p[0]) * unit, p[3], p[6]);
        int64_t second = tw_scale((y[walk.offset[1]] - p[1]) * unit, p[4], p[7]);
        uint32_t d = (uint32_t)(first - second); /* the low half of its square is that of the difference's */
        *z++ = tw_requantise(d * d, p[5], p[8], p[2], -128, 127);
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}

/* p: two zero points, two multipliers, two exponents; accepted: 1 for less, 2 for equal, 4 for greater, added up */
void tw_compare_int8(const int8_t *x, const int8_t *y, uint8_t *z, const int32_t *plan, const int32_t *p,
                     int32_t accepted) {
    struct tw_walk walk = {{0}, {0}};
    do {
        int32_t first = tw_scale((x[walk.offset[0]] - p[0]) * 256, p[2], p[4]);
        int32_t second = tw_scale((y[walk.offset[1]] - p[1]) * 256, p[3], p[5]);
        int32_t order = first < second ? 1 : first == second ? 2 : 4;
        *z++ = (order & accepted) != 0;
    } while (tw_next(&walk, 2, plan[0], plan + 1));
}
