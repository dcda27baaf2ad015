/* Arithmetic on numbers, which networks have beside their quantised operators. What is added to a product is so in two
 * steps: compile without contraction to fused operations. */
#include <string.h>

#include "tw_host.h"

#define LARGEST 0x1.fffffep127f /* float32 number */

static int64_t power(uint64_t base, int64_t exponent) {
    uint64_t found = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) found *= base;
    return exponent < 0 ? 0 : (int64_t)found;
}

static int64_t of_integers(int32_t function, int64_t x, int64_t y) {
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    double quotient;
    switch (function) {
    case TW_ADD: return (int64_t)(a + b);
    case TW_SUB: return (int64_t)(a - b);
    case TW_MUL: return (int64_t)(a * b);
    case TW_DIV:
        quotient = y ? (double)x / (double)y : 0;
        return quotient < 0x1p63 ? (int64_t)quotient : INT64_MIN;
    case TW_FLOOR_DIV: return y == 0 ? 0 : y == -1 ? (int64_t)(0 - a) : tw_floor_divide(x, y);
    case TW_FLOOR_MOD: return y == 0 || y == -1 ? 0 : (int64_t)(a - (uint64_t)tw_floor_divide(x, y) * b);
    case TW_POW: return power(a, y);
    case TW_MAXIMUM: return x > y ? x : y;
    case TW_MINIMUM: return x < y ? x : y;
    case TW_PRELU:
    case TW_LEAKY: return x >= 0 ? x : (int64_t)(a * b);
    default: return (int64_t)((a - b) * (a - b));
    }
}

static float floor_of(float x) {
    float whole;
    if (!(x > -0x1p23f && x < 0x1p23f)) return x; /* has no fraction */
    whole = (float)(int32_t)x;
    return whole == x ? x : whole > x ? whole - 1.0f : whole;
}

static float of_floats(int32_t function, float x, float y) {
    switch (function) {
    case TW_ADD: return x + y;
    case TW_SUB: return x - y;
    case TW_MUL: return x * y;
    case TW_DIV: return x / y;
    case TW_FLOOR_DIV: return floor_of(x / y);
    case TW_MAXIMUM: return x != x || x > y ? x : y;
    case TW_MINIMUM: return x != x || x < y ? x : y;
    case TW_PRELU: return x >= 0.0f ? x : x * y;
    case TW_LEAKY: return x > 0.0f ? x : x * y;
    default: return (x - y) * (x - y);
    }
}

/* finite: float32 results beyond the largest number become it */
void tw_binary(const void *x, const void *y, void *z, int32_t type, const int32_t *plan, int32_t function,
               int32_t finite) {
    struct tw_walk walk = {{0}, {0}};
    const float *a = x, *b = y;
    float *to = z;
    for (int32_t k = 0, more = 1; more; k++, more = tw_next(&walk, 2, plan[0], plan + 1)) {
        int32_t i = walk.offset[0], j = walk.offset[1];
        if (type == TW_FLOAT32) {
            float found = of_floats(function, a[i], b[j]);
            if (finite) found = found > LARGEST ? LARGEST : found < -LARGEST ? -LARGEST : found;
            to[k] = found;
        } else
            tw_store(z, type, k, of_integers(function, tw_load(x, type, i), tw_load(y, type, j)));
    }
}

static float clipped(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

static float rounded(float x) {
    float size = x < 0.0f ? -x : x, down = floor_of(size), rest = size - down;
    int odd = floor_of(down / 2.0f) * 2.0f != down;
    if (!(rest > 0.0f)) return x;
    size = rest > 0.5f || (rest == 0.5f && odd) ? down + 1.0f : down;
    return x < 0.0f ? -size : size;
}

/* The square root, to the nearest number: the root of the fraction as an integer of 25 bits, one more than needed */
static float root_of(float x) {
    uint32_t bits;
    uint64_t found = 0, square;
    int32_t exponent = 0;
    if (!(x > 0.0f) || x > LARGEST) return x < 0.0f ? TW_INFINITY - TW_INFINITY : x;
    for (; x < 0x1p-126f; exponent--) x *= 4.0f;
    memcpy(&bits, &x, sizeof bits);
    exponent += ((int32_t)(bits >> 23) + 1) / 2;
    square = (uint64_t)((bits & 0x7fffff) | 0x800000) << ((bits >> 23) % 2 ? 25 : 26);
    for (uint64_t bit = (uint64_t)1 << 24; bit; bit >>= 1)
        if ((found + bit) * (found + bit) <= square) found += bit;
    bits = (uint32_t)(found + (found & 1)) >> 1; /* no root lies halfway between two numbers */
    x = (float)bits;
    for (exponent -= 87; exponent > 0; exponent--) x *= 2.0f;
    for (; exponent < 0; exponent++) x *= 0.5f;
    return x;
}

static float of_float(int32_t function, float x, float alpha, float beta) {
    float product = alpha * x, size = x < 0.0f ? -x : x;
    switch (function) {
    case TW_ABS: return size;
    case TW_NEG: return -x;
    case TW_SIGN: return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x;
    case TW_SQUARE: return x * x;
    case TW_CLIP: return clipped(x, alpha, beta);
    case TW_CEIL: return -floor_of(-x);
    case TW_FLOOR: return floor_of(x);
    case TW_ROUND: return rounded(x);
    case TW_ROOT: return root_of(x);
    case TW_INVERSE_ROOT: return 1.0f / root_of(x);
    case TW_RECIPROCAL: return 1.0f / x;
    case TW_SOFTSIGN: return x / (1.0f + size);
    case TW_LEAKY_RELU: return x < 0.0f ? product : x;
    case TW_THRESHOLDED_RELU: return x > alpha ? x : 0.0f;
    case TW_HARD_SIGMOID: return clipped(product + beta, 0.0f, 1.0f);
    case TW_HARD_SWISH: return x * clipped(product + beta, 0.0f, 1.0f);
    default: return x * clipped(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    }
}

static int64_t of_integer(int32_t function, int64_t x, float alpha, float beta) {
    uint64_t a = (uint64_t)x;
    switch (function) {
    case TW_ABS: return x < 0 ? (int64_t)(0 - a) : x;
    case TW_NEG: return (int64_t)(0 - a);
    case TW_SIGN: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case TW_SQUARE: return (int64_t)(a * a);
    default: return x < (int64_t)alpha ? (int64_t)alpha : (float)x > beta ? (int64_t)beta : x;
    }
}

/* alpha and beta are the parameters of a function, of TW_CLIP the bounds */
void tw_unary(const void *x, void *y, int32_t type, int32_t size, int32_t function, float alpha, float beta) {
    const float *from = x;
    float *to = y;
    for (int32_t k = 0; k < size; k++)
        if (type == TW_FLOAT32)
            to[k] = of_float(function, from[k], alpha, beta);
        else
            tw_store(y, type, k, of_integer(function, tw_load(x, type, k), alpha, beta));
}

/* kept is a walk of what results are of, count elements each, reduced a walk through those, in order */
void tw_reduce(const void *x, void *y, int32_t type, const int32_t *kept, const int32_t *reduced, int32_t count,
               int32_t function) {
    static const int32_t steps[] = {TW_ADD, TW_ADD, TW_MUL, TW_MAXIMUM, TW_MINIMUM, TW_MINIMUM, TW_MAXIMUM};
    struct tw_walk outer = {{0}, {0}};
    const float *from = x;
    float *to = y;
    int32_t at = 0;
    do {
        struct tw_walk walk = {{0}, {outer.offset[0], 0, 0, 0}};
        int64_t whole = type == TW_FLOAT32 ? 0 : tw_load(x, type, walk.offset[0]);
        float real = type == TW_FLOAT32 ? from[walk.offset[0]] : 0.0f;
        while (tw_next(&walk, 1, reduced[0], reduced + 1))
            if (type == TW_FLOAT32)
                real = of_floats(steps[function], real, from[walk.offset[0]]);
            else
                whole = of_integers(steps[function], whole, tw_load(x, type, walk.offset[0]));
        if (function == TW_MEAN) {
            real /= (float)count;
            if (type == TW_INT32) whole = (int32_t)whole; /* sums wrap in their type */
            whole = of_integers(TW_DIV, whole, count);
        }
        if (type == TW_FLOAT32)
            to[at++] = real;
        else
            tw_store(y, type, at++, whole);
    } while (tw_next(&outer, 1, kept[0], kept + 1));
}

/* x times weights (units, features), plus biases, added in order */
void tw_number_dense(const float *x, float *y, int32_t rows, int32_t features, int32_t units, const float *weights,
                     const float *biases) {
    for (int32_t row = 0; row < rows; row++, x += features)
        for (int32_t unit = 0; unit < units; unit++) {
            float sum = 0.0f;
            for (int32_t k = 0; k < features; k++) {
                float product = x[k] * weights[unit * features + k];
                sum += product;
            }
            *y++ = sum + biases[unit];
        }
}
