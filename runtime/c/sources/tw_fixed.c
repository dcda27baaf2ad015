/* The rounding of fixed-point numbers. Shifts of negative numbers are written so that C defines them. */
#include "tw_host.h"

int64_t tw_shift(int64_t x, int32_t n) { return x < 0 ? ~(~x >> n) : x >> n; }

int64_t tw_divide_by_power(int64_t x, int32_t n) {
    int64_t half = n ? (int64_t)1 << (n - 1) : 0;
    return x < 0 ? -((half - x) >> n) : (x + half) >> n;
}

int64_t tw_high_product(int64_t a, int64_t b, int32_t bits) {
    int64_t most = ((int64_t)1 << bits) - 1, found = tw_shift(a * b + ((int64_t)1 << (bits - 1)), bits);
    return found < most ? found : most;
}

int32_t tw_scale(int64_t value, int32_t multiplier, int32_t exponent) {
    uint32_t low = (uint32_t)((uint64_t)value << (exponent > 0 ? exponent : 0));
    int64_t wrapped = (int64_t)low - ((int64_t)(low >> 31) << 32);
    int64_t high = tw_high_product(wrapped, multiplier, 31);
    return (int32_t)(exponent < 0 ? tw_divide_by_power(high, -exponent) : high);
}

int64_t tw_rescale(int64_t value, int32_t multiplier, int32_t exponent, int32_t once) {
    int32_t right = 31 - exponent;
    if (!once) return tw_scale(value, multiplier, exponent);
    return tw_shift(value * multiplier + (right ? (int64_t)1 << (right - 1) : 0), right);
}

int64_t tw_clamp(int64_t value, int64_t low, int64_t high) {
    value = value > low ? value : low;
    return value < high ? value : high;
}

int32_t tw_bits(uint64_t x) {
    int32_t count = 0;
    for (; x; x >>= 1) count++;
    return count;
}

/* x * 2**n, saturated to a number of `bits` and a sign */
static int64_t shifted_left(int64_t x, int32_t n, int32_t bits) {
    int64_t most = (int64_t)1 << bits;
    return tw_clamp(x * ((int64_t)1 << n), -most, most - 1);
}

int64_t tw_half_reciprocal(int64_t x, int32_t bits) {
    int64_t half = (x + ((int64_t)1 << bits)) >> 1;
    int64_t y = tw_divide_by_power(1515870810, 31 - bits) +
                tw_high_product(half, tw_divide_by_power(-1010580540, 31 - bits), bits);
    for (int32_t step = 0; step < 3; step++) {
        int64_t error = ((int64_t)1 << (bits - 2)) - tw_high_product(half, y, bits);
        y += shifted_left(tw_high_product(y, error, bits), 2, bits);
    }
    return y;
}

int64_t tw_reciprocal(int64_t x, int32_t bits) { return shifted_left(tw_half_reciprocal(x, bits), 1, bits); }

int64_t tw_floor_divide(int64_t x, int64_t y) {
    int64_t quotient = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

int8_t tw_requantise(int64_t value, int32_t multiplier, int32_t exponent, int32_t zero_point, int32_t low,
                     int32_t high) {
    return (int8_t)tw_clamp((int64_t)tw_scale(value, multiplier, exponent) + zero_point, low, high);
}
