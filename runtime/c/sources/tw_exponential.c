/* Exponentials of float32 numbers, in double precision: compile without contraction to fused operations.
 * table holds the bits of numbers in double precision. */
#include <string.h>

#include "tw_host.h"

/* Number k of a table of the bits of numbers. */
static double number(const int64_t *table, int32_t k) {
    double found;
    memcpy(&found, table + k, sizeof found);
    return found;
}

/* exp(x) = 2**(k / 32) * polynomial(r), where x * 32 / log(2) is k + r and |r| at most 1/2. The table has the 32
 * powers, the polynomial's coefficients, the highest first, and 32 / log(2). */
static float exponential(float x, const int64_t *table) {
    double steps = x < -200.0f ? -200.0 : x > 200.0f ? 200.0 : (double)x, r, polynomial, scale;
    int32_t k;
    int64_t bits;
    if (x != x) return x;
    steps *= number(table, 36);
    k = (int32_t)steps;
    if (steps - k > 0.5 || (steps - k == 0.5 && k % 2)) k++;
    if (steps - k < -0.5 || (steps - k == -0.5 && k % 2)) k--;
    r = steps - k;
    polynomial = number(table, 34) * r;
    polynomial += number(table, 35);
    scale = number(table, 32) * r;
    scale += number(table, 33);
    polynomial = scale * (r * r) + polynomial;
    bits = (1023 + tw_shift(k, 5)) * ((int64_t)1 << 52);
    memcpy(&scale, &bits, sizeof scale);
    return (float)(polynomial * (number(table, k & 31) * scale));
}

void tw_exp(const float *x, float *y, int32_t size, const int64_t *table) {
    for (int32_t k = 0; k < size; k++) y[k] = exponential(x[k], table);
}

/* 1 / (1 + exp(-x)): 1 above full, exp(x) below small */
void tw_logistic(const float *x, float *y, int32_t size, float full, float small, const int64_t *table) {
    for (int32_t k = 0; k < size; k++)
        if (x[k] < small)
            y[k] = exponential(x[k], table);
        else
            y[k] = x[k] > full ? 1.0f : 1.0f / (1.0f + exponential(-x[k], table));
}

/* exp(x) over the sum of exponentials, which are added in order */
void tw_float_softmax(const float *x, float *y, int32_t rows, int32_t size, int32_t inner, const int64_t *table) {
    for (int32_t row = 0; row < rows * inner; row++) {
        int32_t start = row / inner * size * inner + row % inner, end = start + size * inner;
        float largest = x[start], total = 0.0f;
        for (int32_t k = start; k < end; k += inner)
            if (largest == largest && (x[k] > largest || x[k] != x[k])) largest = x[k];
        for (int32_t k = start; k < end; k += inner) {
            y[k] = exponential(x[k] - largest, table);
            total += y[k];
        }
        for (int32_t k = start; k < end; k += inner) y[k] /= total;
    }
}
