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

/* ---- tw_moves.c ---- */

/* Copy pieces of so many bytes along a walk of both; starts and steps are bytes. */
void tw_move(const void *x, int32_t x_start, void *y, int32_t y_start, int32_t bytes, const int32_t *plan);
/* Every element, of so many bytes, is value. */
void tw_fill(void *y, int32_t size, int32_t bytes, const void *value);
/* Copy pieces by offsets along each dimension; the plan: their number, then the count and the byte offsets of each. */
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
int tw_expect_numbers(const int8_t *flags, int8_t *y, int32_t size);
void tw_dequantize(const void *x, int32_t bytes, float *y, int32_t size, float scale, int32_t zero_point);
void tw_lookup(const int8_t *x, int8_t *y, int32_t size, const int8_t *table);
/* uint8 as int8, and back */
void tw_recode(const void *x, void *y, int32_t size);

/* R(x - x_zero_point) + zero_point of integers, clamped to those of the type of y */
void tw_rescale_integers(const void *x, int32_t x_type, void *y, int32_t y_type, int32_t size, int32_t x_zero_point,
                         int32_t zero_point, int32_t multiplier, int32_t exponent);
void tw_narrow(const void *x, int32_t type, int8_t *y, int32_t size);
/* Numbers in another type: fractions are cut off, integers wrap. */
void tw_cast(const void *x, int32_t x_type, void *y, int32_t y_type, int32_t size);

/* ---- tw_pairs.c: on two arrays, along a walk of both; p are the numbers of the operator ---- */

/* p: zero points of x, y and the output, three multipliers, three exponents, sign, shift, low, high */
void tw_add(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p);
/* p: three zero points, multiplier, exponent, low, high */
void tw_multiply(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p);
void tw_divide(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p);
/* The larger value of each pair times sign: the smaller one for -1. */
void tw_extreme(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, int32_t sign);
/* table[256 * x + y], counted from the smallest values of their types */
void tw_lookup_pair(const void *x, int32_t x_type, const void *y, int32_t y_type, int8_t *z, const int32_t *plan,
                    const int8_t *table);
/* p: three zero points, two multipliers, two exponents */
void tw_prelu(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p);
/* p: three zero points, three multipliers, three exponents, shift */
void tw_squared_difference(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p);
/* p: two zero points, two multipliers, two exponents; accepted: 1 for less, 2 for equal, 4 for greater, added up */
void tw_compare_int8(const int8_t *x, const int8_t *y, uint8_t *z, const int32_t *plan, const int32_t *p,
                     int32_t accepted);

/* ---- tw_numbers.c ---- */

/* The accepted orders, as above, and 8 for numbers of which one is NaN. */
void tw_compare(const void *x, const void *y, int32_t type, uint8_t *z, const int32_t *plan, int32_t accepted);
/* Pieces of so many bytes of x where the condition holds, else of y, along a walk of all three. */
void tw_select(const uint8_t *condition, const void *x, const void *y, void *z, int32_t bytes, const int32_t *plan);
/* The position of the largest, or smallest, of each row, of several the first. */
void tw_arg_max(const void *x, int32_t type, void *y, int32_t y_type, int32_t rows, int32_t size, int32_t inner,
                int32_t smallest);
/* The largest of each row, or their positions, the largest first, of equal ones the first. */
void tw_top_k(const void *x, int32_t type, void *y, int32_t rows, int32_t size, int32_t count, int32_t positions);
/* For each of outer parts of x pieces at the positions where; the plan: their number of dimensions, then size and bytes
 * from one to the next of each; 0 for a position that is not in x */
int tw_gather(const void *x, const void *where, int32_t type, void *y, int32_t outer, int32_t outer_bytes,
              int32_t count, int32_t bytes, const int32_t *plan);

/* ---- tw_rows.c: x is rows times size times inner elements; an operator is along the middle ---- */

/* softmax by the exponentials of the 256 differences in Q0.31, -1 where they are 0; y is int8 or int16 by bits */
void tw_softmax(const int8_t *x, void *y, int32_t rows, int32_t size, int32_t inner, const int32_t *exponentials,
                int32_t bits);
/* x - x_zero_point over the root of the sum of its squares; scaled_first: in which order they are rounded */
void tw_l2_normalize(const int8_t *x, int8_t *y, int32_t rows, int32_t size, int32_t inner, int32_t x_zero_point,
                     int32_t scaled_first);

/* ---- tw_recurrent.c: gates and cells are int16; sums for gates have 12 fractional bits ---- */

/* The hidden values after each of steps and the cells after the last, count times (steps + 1) times units; gates are
 * count times steps times the kinds of gates, 4, or 3 if coupled, times units. Per row of weights a bias, a multiplier
 * and an exponent in rows; p: zero point, cell bits, clip, multiplier, exponent */
void tw_lstm(const int16_t *gates, const int8_t *hidden, const int16_t *cells, int16_t *y, int32_t count,
             int32_t steps, int32_t units, int32_t coupled, const int8_t *weights, const int32_t *rows,
             const int32_t *p);
/* One step, whose own part of the sums is known. */
void tw_lstm_step(const int16_t *gates, const void *own, int32_t own_type, const int16_t *cells, int16_t *y,
                  int32_t count, int32_t units, int32_t coupled, const int32_t *p);

/* ---- tw_attention.c: positions are checked; 0 for one that is outside ---- */

/* z = requantised sums of (x - zx) * (y - zy), along a walk of the matrices of all three; p: rows, columns and summed
 * elements; steps of x from row to row and element to element, of y from column to column and element to element, of z
 * from row to row and column to column; the three zero points, multiplier, exponent */
void tw_batch_matmul(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p);
/* x times the inverse root of the sum of its squares >> shift, in each row; roots are the two tables of the first guess
 * of an inverse root, scales a multiplier and an exponent per element of a row */
void tw_rms_norm(const int8_t *x, int8_t *y, int32_t rows, int32_t size, int32_t shift, const int32_t *roots,
                 const int32_t *scales);
/* Elements of the halves of chunks of 2 * width turned by the angles of the position; scale: multiplier, exponent */
int tw_rotate(const int8_t *x, const int32_t *position, int8_t *y, int32_t size, int32_t width, int32_t positions,
              const int16_t *cosine, const int16_t *sine, const int32_t *scale);
void tw_write_rows(const int8_t *row, const int32_t *position, int8_t *y, int32_t size, int32_t positions);
int tw_write_columns(const int8_t *block, const int32_t *position, int8_t *y, int32_t positions, int32_t width,
                     int32_t size);
/* p: chunks, lanes of a key, positions, lanes of a value, positions read, two multipliers, two exponents, three shifts
 * of a reciprocal, the number of groups, the groups, the group of each lane of half a key, that of each of a value;
 * weights are those of the 256 differences of scores; scratch: 4 bytes per position that is read */
int tw_attention(const int8_t *queries, const int8_t *keys, const int8_t *values, const int32_t *position, int8_t *y,
                 void *scratch, const int32_t *p, const int8_t *weights, const int32_t *roots);

/* ---- tw_deeploy.c ---- */

/* z = sums of x * y, int32, along a walk of the matrices of all three */
void tw_integer_matmul(const void *x, int32_t x_type, const void *y, int32_t y_type, int32_t *z, int32_t rows,
                       int32_t columns, int32_t inner, const int32_t *plan);
/* p: shift, low, high, zero point */
void tw_requant_shift(const int32_t *x, const int32_t *factor, const int32_t *offset, void *z, int32_t type,
                      const int32_t *plan, const int32_t *p);
/* p: quadratic, linear, constant, period, levels, multiplier, exponent, zero point, low, high */
void tw_integer_softmax(const void *x, int32_t type, int8_t *y, int32_t rows, int32_t size, const int32_t *p);
/* bias may be a null pointer; p: shift, low, high, zero point */
void tw_integer_norm(const void *x, int32_t type, const int32_t *weight, const int32_t *bias, int8_t *y, int32_t rows,
                     int32_t size, const int32_t *p);

/* ---- tw_arithmetic.c ---- */

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

/* finite: float32 results beyond the largest number become it */
void tw_binary(const void *x, const void *y, void *z, int32_t type, const int32_t *plan, int32_t function,
               int32_t finite);
/* alpha and beta are the parameters of a function, of TW_CLIP the bounds */
void tw_unary(const void *x, void *y, int32_t type, int32_t size, int32_t function, float alpha, float beta);
/* kept is a walk of what results are of, count elements each, reduced a walk through those, in order */
void tw_reduce(const void *x, void *y, int32_t type, const int32_t *kept, const int32_t *reduced, int32_t count,
               int32_t function);
/* x times weights (units, features), plus biases, added in order */
void tw_number_dense(const float *x, float *y, int32_t rows, int32_t features, int32_t units, const float *weights,
                     const float *biases);

/* ---- tw_windows.c: images are planes of height times width ---- */

/* How a window becomes a value: the largest, a sum rescaled in one of two contracts, a mean of the pixels inside. */
enum { TW_LARGEST, TW_RESCALED_TWICE, TW_RESCALED_ONCE, TW_MEAN_AWAY, TW_MEAN_UP };
/* p: planes, height, width, rows and columns of windows, height and width of a window, strides, pads at the top and
 * left, low, high, and of rescaled sums x zero point, zero point, multiplier, exponent */
void tw_pool(const int8_t *x, int8_t *y, int32_t function, const int32_t *p);
/* Means of four neighbours: per row and per column of the result the lower index, the upper one and its weight in
 * 1 / 1024; p: planes, height, width, rows, columns */
void tw_resize(const int8_t *x, int8_t *y, const int32_t *p, const int32_t *rows, const int32_t *columns);
/* In float32, with the weights beside the indices; int8 values by type, to which the offset is added. */
void tw_resize_real(const void *x, void *y, int32_t type, int32_t offset, const int32_t *p, const int32_t *rows,
                    const float *down, const int32_t *columns, const float *across);
/* zero_point + R(sum(x - x_zero_point)); walks as of tw_reduce; p: x zero point, zero point, multiplier, exponent */
void tw_mean(const int8_t *x, int8_t *y, const int32_t *kept, const int32_t *reduced, const int32_t *p);

/* ---- tw_layers.c: weights are int8 or int16 by their type; accumulators wrap at 32 bits ---- */

/* p: images, channels, height, width, outputs, rows, columns, channels of a group, kernel height and width, strides,
 * pads at the top and left, dilations, groups, x zero point */
void tw_conv2d(const int8_t *x, int32_t *y, const void *weights, int32_t type, const int32_t *bias, const int32_t *p);
/* p as of tw_conv2d: the dilations and groups are 1; a pixel of the result collects what reaches it */
void tw_conv_transpose2d(const int8_t *x, int32_t *y, const void *weights, int32_t type, const int32_t *bias,
                         const int32_t *p);
/* Images of so many channels of inner values; per channel a multiplier and an exponent in scales; once: rounded once */
void tw_requantise_channels(const int32_t *x, int8_t *y, int32_t images, int32_t channels, int32_t inner,
                            const int32_t *scales, int32_t once, int32_t zero_point, int32_t low, int32_t high);
/* x times weights (units, features), plus biases; if scales are no null pointer each is rescaled and clamped to the
 * type of y, int16 or int32 */
void tw_dense(const int8_t *x, void *y, int32_t y_type, int32_t rows, int32_t features, int32_t units,
              const void *weights, int32_t type, const int32_t *bias, int32_t x_zero_point, const int32_t *scales);
/* p: windows, filters, taps, units, zero point, multiplier, exponent */
void tw_filter(const int16_t *x, int8_t *y, const int16_t *weights, const int32_t *bias, const int32_t *p);

/* ---- tw_floats.c ---- */

/* The largest of each window, or the mean; p: planes, height, width, rows and columns of windows, height and width of a
 * window, strides, pads at the top and left */
void tw_float_pool(const float *x, float *y, int32_t largest, int32_t padding_counts, const int32_t *p);
/* p as of tw_conv2d, without the zero point; transposed: the weights' second dimension is the outputs of a group */
void tw_float_conv2d(const float *x, float *y, const float *weights, const float *bias, const int32_t *p);
void tw_float_conv_transpose2d(const float *x, float *y, const float *weights, const float *bias, const int32_t *p);
/* z = sums of x * y along a walk of the matrices of both */
void tw_float_matmul(const float *x, const float *y, float *z, int32_t rows, int32_t columns, int32_t inner,
                     const int32_t *plan);

/* ---- tw_exponential.c: table are the bits of numbers in double precision ---- */

void tw_exp(const float *x, float *y, int32_t size, const int64_t *table);
/* 1 / (1 + exp(-x)): 1 above full, exp(x) below small */
void tw_logistic(const float *x, float *y, int32_t size, float full, float small, const int64_t *table);
/* exp(x) over the sum of exponentials, which are added in order */
void tw_float_softmax(const float *x, float *y, int32_t rows, int32_t size, int32_t inner, const int64_t *table);

#endif
