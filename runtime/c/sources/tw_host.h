/* Operators that the host computes between launches of the accelerator.
 *
 * Results are those of the Python kernels, to the bit. No function allocates memory or needs the mathematics library.
 * Integers have the byte order of the accelerator's memory, little-endian. Sizes count elements, steps and starts are
 * named with their unit. A walk is a plan: its number of dimensions, then for each, the innermost first, its size and
 * the step of each operand.
 */
#ifndef TW_HOST_H
#define TW_HOST_H

#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels need a little-endian host"
#endif

#define TW_INFINITY (1.0f / 0.0f)
#define TW_RANK 8 /* most dimensions of a walk */

/* ---- tw_fixed.c: the rounding of fixed-point numbers; Qa.b has b fractional bits ---- */

/* x / 2**n, rounded down, 0 <= n < 64 */
int64_t tw_shift(int64_t x, int32_t n);
/* x / 2**n to the nearest integer, ties away from zero, 0 <= n < 63 */
int64_t tw_divide_by_power(int64_t x, int32_t n);
/* a * b / 2**bits to the nearest integer, ties up, at most 2**bits - 1 */
int64_t tw_high_product(int64_t a, int64_t b, int32_t bits);
/* value times multiplier * 2**(exponent - 31), rounded twice; the value wraps at 32 bits when it is shifted left */
int32_t tw_scale(int64_t value, int32_t multiplier, int32_t exponent);
/* the same, with once rounded once, ties up */
int64_t tw_rescale(int64_t value, int32_t multiplier, int32_t exponent, int32_t once);
int64_t tw_clamp(int64_t value, int64_t low, int64_t high);
/* the number of bits of x */
int32_t tw_bits(uint64_t x);
/* 2 / (1 + x) with two integer bits, and 1 / (1 + x), of x >= 0 in Q0.bits */
int64_t tw_half_reciprocal(int64_t x, int32_t bits);
int64_t tw_reciprocal(int64_t x, int32_t bits);
/* x / y, rounded down */
int64_t tw_floor_divide(int64_t x, int64_t y);
/* clamp(zero_point + tw_scale(value)) */
int8_t tw_requantise(int64_t value, int32_t multiplier, int32_t exponent, int32_t zero_point, int32_t low,
                     int32_t high);

/* ---- tw_walk.c ---- */

struct tw_walk {
    int32_t at[TW_RANK];
    int32_t offset[4]; /* of each operand, in its unit */
};
/* Move each operand to the next element, by the rows of a plan, one per dimension; 0 after the last one. */
int tw_next(struct tw_walk *walk, int32_t operands, int32_t dimensions, const int32_t *row);

/* Types of elements; bool is TW_UINT8. */
enum { TW_INT8, TW_UINT8, TW_INT16, TW_INT32, TW_INT64, TW_FLOAT32 };
/* Element k of integers, and its new value, which wraps. */
int64_t tw_load(const void *x, int32_t type, int32_t k);
void tw_store(void *y, int32_t type, int32_t k, int64_t value);

/* ---- names for arguments of the functions of the other files ---- */

/* On two numbers: an integer by 0 is 0, and integers wrap. */
enum {
    TW_ADD, TW_SUB, TW_MUL, TW_DIV, TW_FLOOR_DIV, TW_FLOOR_MOD, TW_POW, TW_MAXIMUM, TW_MINIMUM, TW_PRELU,
    TW_LEAKY, TW_SQUARED_DIFFERENCE
};
/* On one number; those from TW_CEIL on need float32. */
enum {
    TW_ABS, TW_NEG, TW_SIGN, TW_SQUARE, TW_CLIP,
    TW_CEIL, TW_FLOOR, TW_ROUND, TW_ROOT, TW_INVERSE_ROOT, TW_RECIPROCAL, TW_SOFTSIGN, TW_LEAKY_RELU,
    TW_THRESHOLDED_RELU, TW_HARD_SIGMOID, TW_HARD_SWISH, TW_HARD_SWISH6
};
/* Of the elements that become one. */
enum { TW_SUM, TW_MEAN, TW_PROD, TW_REDUCE_MAX, TW_REDUCE_MIN, TW_ALL, TW_ANY };
/* How a window becomes a value: the largest, a sum rescaled in one of two contracts, a mean of the pixels inside. */
enum { TW_LARGEST, TW_RESCALED_TWICE, TW_RESCALED_ONCE, TW_MEAN_AWAY, TW_MEAN_UP };

/* ---- the functions of the other files: declared here, by their definitions, where C is generated ---- */

#endif
