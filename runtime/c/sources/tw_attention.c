/* Operators of transformers. Positions are checked; 0 for one that is outside. */
#include "tw_host.h"

#define ROOT_BITS 20
#define UNIT (int64_t)1 /* keeps what is shifted left defined for negative numbers */

/* z = requantised sums of (x - zx) * (y - zy), along a walk of the matrices of all three; p: rows, columns and summed
 * elements; steps of x from row to row and element to element, of y from column to column and element to element, of z
 * from row to row and column to column; the three zero points, multiplier, exponent, whether it is rounded once */
void tw_batch_matmul(const int8_t *x, const int8_t *y, int8_t *z, const int32_t *plan, const int32_t *p) {
    struct tw_walk walk = {{0}, {0}};
    do {
        for (int32_t row = 0; row < p[0]; row++)
            for (int32_t column = 0; column < p[1]; column++) {
                const int8_t *a = x + walk.offset[0] + row * p[3], *b = y + walk.offset[1] + column * p[5];
                int64_t sum = 0;
                for (int32_t k = 0; k < p[2]; k++) sum += (a[k * p[4]] - p[9]) * (b[k * p[6]] - p[10]);
                sum = tw_rescale(sum, p[12], p[13], p[14]) + p[11];
                z[walk.offset[2] + row * p[7] + column * p[8]] = (int8_t)tw_clamp(sum, -128, 127);
            }
    } while (tw_next(&walk, 3, plan[0], plan + 1));
}

/* 2**20 / sqrt(s) of s from 0 to 2**20: a guess from two tables, and two steps of Newton's method */
static int64_t inverse_root(int64_t s, const int32_t *roots) {
    int64_t r = roots[tw_clamp(s >> 12, 0, 255)] + roots[256 + tw_clamp(s >> 6, 0, 255)];
    for (int32_t step = 0; step < 2; step++) {
        int64_t square = tw_shift(s * r, 10) * r;
        r = tw_shift(r * ((3 << 11) - tw_shift(square, 19)), 12);
    }
    return r;
}

/* x times the inverse root of the sum of its squares >> shift, in each row; roots are the two tables of the first guess
 * of an inverse root, scales a multiplier and an exponent per element of a row */
void tw_rms_norm(const int8_t *x, int8_t *y, int32_t rows, int32_t size, int32_t shift, const int32_t *roots,
                 const int32_t *scales) {
    for (; rows; rows--, x += size, y += size) {
        int64_t squares = 0;
        for (int32_t k = 0; k < size; k++) squares += x[k] * x[k];
        int64_t root = inverse_root(squares >> shift, roots);
        for (int32_t k = 0; k < size; k++) y[k] = tw_requantise(x[k] * root, scales[k], scales[size + k], 0, -128, 127);
    }
}

/* Elements of the halves of chunks of 2 * width turned by the angles of the position; scale: multiplier, exponent */
int tw_rotate(const int8_t *x, const int32_t *position, int8_t *y, int32_t size, int32_t width, int32_t positions,
              const int16_t *cosine, const int16_t *sine, const int32_t *scale) {
    if (*position < 0 || *position >= positions) return 0;
    cosine += *position * width;
    sine += *position * width;
    for (int32_t chunk = 0; chunk < size; chunk += 2 * width)
        for (int32_t k = 0; k < width; k++) {
            int32_t a = x[chunk + k], b = x[chunk + width + k], c = cosine[k], s = sine[k];
            y[chunk + k] = tw_requantise(a * c - b * s, scale[0], scale[1], 0, -128, 127);
            y[chunk + width + k] = tw_requantise(a * s + b * c, scale[0], scale[1], 0, -128, 127);
        }
    return 1;
}

void tw_write_rows(const int8_t *row, const int32_t *position, int8_t *y, int32_t size, int32_t positions) {
    int32_t place = *position % positions;
    if (place < 0) place += positions;
    for (int32_t k = 0; k < size; k++) y[k * positions + place] = row[k];
}

int tw_write_columns(const int8_t *block, const int32_t *position, int8_t *y, int32_t positions, int32_t width,
                     int32_t size) {
    if (*position < 0 || *position >= positions) return 0;
    int32_t first = *position / size * size;
    for (int32_t b = 0; b < size; b++)
        for (int32_t k = 0; k < width; k++) y[(first + b) * width + k] = block[k * size + b];
    return 1;
}

/* p: chunks, lanes of a key, positions, lanes of a value, positions read, two multipliers, two exponents, three shifts
 * of a reciprocal, the number of groups, the groups, the group of each lane of half a key, that of each of a value;
 * weights are those of the 256 differences of scores; scratch: 4 bytes per position that is read */
int tw_attention(const int8_t *queries, const int8_t *keys, const int8_t *values, const int32_t *position, int8_t *y,
                 void *scratch, const int32_t *p, const int8_t *weights, const int32_t *roots) {
    int32_t chunks = p[0], width = p[1], positions = p[2], lanes = p[3], last = *position, groups = p[12];
    int32_t half = width / 2, *scores = scratch;
    const int32_t *of_keys = p + 13 + groups, *of_values = of_keys + half;
    if (last < 0 || last >= p[4]) return 0;
    for (int32_t chunk = 0; chunk < chunks; chunk++, queries += width, y += lanes) {
        for (int32_t k = 0; k < lanes; k++) y[k] = 0; /* those that are padding stay so */
        for (int32_t g = 0; g < groups; g++) {
            int32_t group = p[13 + g], largest = INT32_MIN;
            int64_t total = 0;
            for (int32_t n = 0; n <= last; n++) {
                int32_t sum = 0;
                for (int32_t k = 0; k < half; k++)
                    if (of_keys[k] == group) {
                        const int8_t *key = keys + k * positions + n;
                        sum += queries[k] * *key + queries[half + k] * key[half * positions];
                    }
                scores[n] = tw_scale(sum, p[5], p[7]);
                largest = scores[n] > largest ? scores[n] : largest;
            }
            for (int32_t n = 0; n <= last; n++) {
                scores[n] = weights[tw_clamp((int64_t)scores[n] - largest + 255, 0, 255)];
                total += scores[n];
            }
            int64_t root = inverse_root(total * (UNIT << p[9]), roots) >> p[10], inverse = root * root >> p[11];
            for (int32_t k = 0; k < lanes; k++) {
                int64_t sum = 0;
                if (of_values[k] != group) continue;
                for (int32_t n = 0; n <= last; n++) sum += scores[n] * values[n * lanes + k];
                y[k] = tw_requantise(sum * inverse, p[6], p[8], 0, -128, 127);
            }
        }
    }
    return 1;
}
