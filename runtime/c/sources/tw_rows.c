/* Operators along an axis: x is rows times size times inner elements, of which they are along the middle. */
#include "tw_host.h"

#define INTEGER_BITS 12 /* of the sum of exponentials */

/* softmax by tables of the 256 differences: numerators in Q0.31, -1 where they are 0, and exponentials in Q12.19 to be
 * added up; shares have so many places after the point, and are added to the zero point; y has 8 or 16 bits */
void tw_softmax(const int8_t *x, void *y, int32_t rows, int32_t size, int32_t inner, const int32_t *numerators,
                const int32_t *summands, int32_t places, int32_t bits, int32_t zero) {
    int32_t least = -(1 << (bits - 1));
    for (int32_t row = 0; row < rows * inner; row++) {
        int32_t start = row / inner * size * inner + row % inner, end = start + size * inner, largest = -128;
        int64_t total = 0;
        for (int32_t k = start; k < end; k += inner) largest = x[k] > largest ? x[k] : largest;
        for (int32_t k = start; k < end; k += inner) total += summands[largest - x[k]];
        int32_t headroom = 32 - tw_bits((uint64_t)total);
        int64_t inverse = tw_reciprocal((total << headroom) - ((int64_t)1 << 31), 31);
        for (int32_t k = start; k < end; k += inner) {
            int32_t e = numerators[largest - x[k]];
            int64_t share = tw_divide_by_power(tw_high_product(inverse, e, 31), INTEGER_BITS + 31 - places - headroom);
            int64_t found = e >= 0 ? tw_clamp(share + zero, least, -least - 1) : zero;
            if (bits == 8)
                ((int8_t *)y)[k] = (int8_t)found;
            else
                ((int16_t *)y)[k] = (int16_t)found;
        }
    }
}

#define LARGEST INT32_MAX
#define ONE ((int64_t)1 << 28) /* in Q3.28 */

static int64_t high(int64_t a, int64_t b) { return tw_high_product(a, b, 31); }

static int64_t saturated(int64_t x) { return tw_clamp(x, INT32_MIN, INT32_MAX); }

/* The multiplier of 1 / sqrt(x), in five steps of Newton's method; 1 stands for 0. Its exponent goes to the second. */
static int32_t inverse_root(int64_t x, int32_t *exponent) {
    int64_t value = x < 2 ? 2 : x, root = ONE;
    int32_t shift = 11;
    *exponent = 0;
    if (x <= 1) return LARGEST;
    for (; value >= (int64_t)1 << 29; shift++) value /= 4;
    int32_t pairs = (31 - tw_bits((uint64_t)value)) / 2 - 1;
    value <<= 2 * pairs;
    shift -= pairs;
    int64_t half = tw_divide_by_power(value >> 1, 1);
    for (int32_t step = 0; step < 5; step++) {
        int64_t cube = saturated(high(high(root, root), root) * 64);
        root = saturated((high(ONE + ONE / 2, root) - high(half, cube)) * 8);
    }
    *exponent = shift > 0 ? -shift : 0;
    return (int32_t)(high(root, 1518500250) << (shift < 0 ? -shift : 0)); /* sqrt(2) / 2 in Q0.31 */
}

/* x - x_zero_point over the root of the sum of its squares; scaled_first: in which order they are rounded */
void tw_l2_normalize(const int8_t *x, int8_t *y, int32_t rows, int32_t size, int32_t inner, int32_t x_zero_point,
                     int32_t scaled_first) {
    for (int32_t row = 0; row < rows * inner; row++) {
        int32_t start = row / inner * size * inner + row % inner, end = start + size * inner, exponent;
        int64_t squares = 0;
        for (int32_t k = start; k < end; k += inner) squares += (x[k] - x_zero_point) * (x[k] - x_zero_point);
        int32_t multiplier = inverse_root(squares, &exponent);
        for (int32_t k = start; k < end; k += inner) {
            int32_t d = x[k] - x_zero_point;
            int64_t found = scaled_first ? tw_divide_by_power(high(d * 128, multiplier), -exponent)
                                         : tw_scale(d, multiplier, exponent + 7);
            y[k] = (int8_t)tw_clamp(found, -128, 127);
        }
    }
}
