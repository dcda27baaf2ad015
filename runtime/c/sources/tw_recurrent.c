/* Recurrent layers: functions and sums of gates in 15 bits besides the sign. Gates and cells are int16;
 * sums for gates have 12 fractional bits. */
#include "tw_host.h"

#define BITS 15
#define ONE ((1 << BITS) - 1)
#define GATE_BITS 3 /* integer bits of the sums that gates take */

static int32_t product(int32_t a, int32_t b) { return (int32_t)tw_high_product(a, b, BITS); }

/* A constant in Q0.31 as Q0.15 */
static int32_t constant(int32_t value) { return (int32_t)tw_divide_by_power(value, 31 - BITS); }

/* exp(a) in Q0.15 of a <= 0 with so many integer bits: a series within a quarter, times exp(-1/4), exp(-1/2), ... */
static int32_t exponential(int32_t a, int32_t integer_bits) {
    static const int32_t powers[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    int32_t fraction = BITS - integer_bits, quarter = 1 << (fraction - 2), rest = (a & (quarter - 1)) - quarter;
    int32_t x = rest * (1 << integer_bits) + (1 << (BITS - 3)), x2 = product(x, x), x3 = product(x2, x);
    int32_t x4 = product(x2, x2), eighth = constant(1895147668), third = constant(715827883);
    int32_t inner = product((int32_t)tw_divide_by_power(x4, 2) + x3, third) + x2;
    int32_t found = eighth + product(eighth, x + (int32_t)tw_divide_by_power(inner, 1));
    if (a == 0) return ONE;
    found = found < ONE ? found : ONE;
    for (int32_t k = 0; k < integer_bits + 2 && k < 7; k++)
        if ((rest - a) & (quarter << k)) found = product(found, constant(powers[k]));
    return integer_bits > 5 && a < -(1 << (fraction + 5)) ? 0 : found;
}

static int32_t logistic(int32_t x) {
    int32_t right = (int32_t)tw_reciprocal(exponential(x < 0 ? x : -x, GATE_BITS), BITS);
    return x == 0 ? 1 << (BITS - 1) : x > 0 ? right : ONE - right;
}

/* tanh(x) = 2 / (1 + exp(-2 * x)) - 1; one more integer bit doubles x */
static int32_t hyperbolic(int32_t x, int32_t integer_bits) {
    int64_t twice = tw_half_reciprocal(exponential(x < 0 ? x : -x, integer_bits + 1), BITS);
    int32_t right = (int32_t)tw_clamp((twice - (1 << (BITS - 2))) * 4, -ONE - 1, ONE);
    return x == 0 ? 0 : x > 0 ? right : -right;
}

/* The hidden value of a unit; the cell changes. Sums are those of input, forget, cell and output gate. */
static int16_t step(const int32_t *sums, int32_t coupled, int16_t *cell, const int32_t *p) {
    int32_t forget = logistic(sums[1]), allow = coupled ? ONE - forget : logistic(sums[0]);
    int16_t fresh = (int16_t)tw_divide_by_power(allow * hyperbolic(sums[2], GATE_BITS), BITS + p[1]);
    int64_t c = (int16_t)tw_divide_by_power(forget * *cell, BITS) + fresh;
    c = tw_clamp(c, -ONE - 1, ONE);
    if (p[2]) c = tw_clamp(c, -p[2], p[2]);
    *cell = (int16_t)c;
    return tw_requantise(logistic(sums[3]) * hyperbolic(*cell, p[1]), p[3], p[4], p[0], -128, 127);
}

/* The hidden values after each of steps and the cells after the last, count times (steps + 1) times units; gates are
 * count times steps times the kinds of gates, 4, or 3 if coupled, times units. Per row of weights a bias, a multiplier
 * and an exponent in rows; p: zero point, cell bits, clip, multiplier, exponent */
void tw_lstm(const int16_t *gates, const int8_t *hidden, const int16_t *cells, int16_t *y, int32_t count,
             int32_t steps, int32_t units, int32_t coupled, const int8_t *weights, const int32_t *rows,
             const int32_t *p) {
    int32_t first = coupled ? 1 : 0, all = (4 - first) * units;
    for (int32_t n = 0; n < count; n++, y += (steps + 1) * units) {
        int16_t *cell = y + steps * units;
        for (int32_t u = 0; u < units; u++) cell[u] = cells[n * units + u];
        for (int32_t t = 0; t < steps; t++, gates += all)
            for (int32_t u = 0; u < units; u++) {
                int32_t sums[4] = {0};
                for (int32_t gate = first; gate < 4; gate++) {
                    int32_t row = (gate - first) * units + u;
                    uint32_t own = (uint32_t)rows[row];
                    for (int32_t k = 0; k < units; k++) {
                        int32_t h = t ? y[(t - 1) * units + k] : hidden[n * units + k];
                        own += (uint32_t)(h * weights[row * units + k]);
                    }
                    int64_t sum = tw_scale(own, rows[all + row], rows[2 * all + row]);
                    sums[gate] = (int32_t)tw_clamp(sum + gates[row], -ONE - 1, ONE);
                }
                y[t * units + u] = step(sums, coupled, cell + u, p);
            }
    }
}

/* One step, whose own part of the sums is known. */
void tw_lstm_step(const int16_t *gates, const void *own, int32_t own_type, const int16_t *cells, int16_t *y,
                  int32_t count, int32_t units, int32_t coupled, const int32_t *p) {
    int32_t first = coupled ? 1 : 0, all = (4 - first) * units;
    for (int32_t n = 0; n < count; n++, y += 2 * units)
        for (int32_t u = 0; u < units; u++) {
            int32_t sums[4] = {0};
            for (int32_t gate = first; gate < 4; gate++) {
                int32_t row = n * all + (gate - first) * units + u;
                sums[gate] = (int32_t)tw_clamp(tw_load(own, own_type, row) + gates[row], -ONE - 1, ONE);
            }
            y[units + u] = cells[n * units + u];
            y[u] = step(sums, coupled, y + units + u, p);
        }
}
