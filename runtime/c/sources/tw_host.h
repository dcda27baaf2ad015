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
int64_t tw_clamp(int64_t value, int64_t low, int64_t high);
/* the number of bits of x */
int32_t tw_bits(uint64_t x);
/* 2 / (1 + x) with two integer bits, and 1 / (1 + x), of x >= 0 in Q0.bits */
int64_t tw_half_reciprocal(int64_t x, int32_t bits);
int64_t tw_reciprocal(int64_t x, int32_t bits);

/* ---- tw_walk.c ---- */

struct tw_walk {
    int32_t at[TW_RANK];
    int32_t offset[4]; /* of each operand, in its unit */
};
/* Move each operand to the next element; 0 after the last one. */
int tw_next(struct tw_walk *walk, int32_t operands, const int32_t *plan);

/* ---- tw_moves.c ---- */

/* Copy pieces of so many bytes along a walk of both; starts and steps are bytes. */
void tw_move(const void *x, int32_t x_start, void *y, int32_t y_start, int32_t bytes, const int32_t *plan);
/* Every element, of so many bytes, is value. */
void tw_fill(void *y, int32_t size, int32_t bytes, const void *value);
/* Copy pieces by offsets along each dimension: the plan is their number, then the count and the byte offsets of each. */
void tw_take(const void *x, void *y, int32_t bytes, const int32_t *plan);
/* Parts of windows; the plan: sizes and steps of image, channel, row and column, strips, step, top, left, rows,
 * dilation, entries, group, block, the number of offsets, the offsets. */
void tw_fold_windows(const int8_t *x, int8_t *y, const int32_t *plan, int32_t value);
/* The highest byte of each integer is the sign of the one below it. */
void tw_extend(int32_t *y, int32_t size);

/* ---- tw_values.c ---- */

/* clamp(round(x / scale) + zero_point), ties to even or away from zero; 0 if there is NaN */
int tw_quantize(const float *x, int8_t *y, int32_t size, float scale, int32_t zero_point, int32_t ties_away);
/* (x - zero_point) * scale of int8 or int16, by their bytes */
void tw_dequantize(const void *x, int32_t bytes, float *y, int32_t size, float scale, int32_t zero_point);
void tw_lookup(const int8_t *x, int8_t *y, int32_t size, const int8_t *table);
/* uint8 as int8, and back */
void tw_recode(const void *x, void *y, int32_t size);

/* ---- tw_rows.c: x is rows times size times inner elements; an operator is along the middle ---- */

/* softmax by the exponentials of the 256 differences in Q0.31, -1 where they are 0; y is int8 or int16 by bits */
void tw_softmax(const int8_t *x, void *y, int32_t rows, int32_t size, int32_t inner, const int32_t *exponentials,
                int32_t bits);

#endif
