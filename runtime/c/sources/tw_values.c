#include "tw_host.h"

/* clamp(round(x / scale) + zero_point) as int8 or int16, ties to even or away from zero; 0 if there is NaN */
int tw_quantize(const float *x, void *y, int32_t type, int32_t size, float scale, int32_t zero_point,
                int32_t ties_away, int32_t reciprocal) {
    int32_t half = type == TW_INT8 ? 128 : 32768;
    float far = 8.0f * (float)half;
    for (int32_t k = 0; k < size; k++) {
        float q = reciprocal ? x[k] * (float)(1.0 / (double)scale) : x[k] / scale;
        if (x[k] != x[k]) return 0;
        q = q > far ? far : q < -far ? -far : q; /* all further out become the same */
        if (ties_away) q += q < 0.0f ? -0x1.fffffep-2f : 0x1.fffffep-2f; /* the float before 0.5: ties become whole */
        int32_t whole = (int32_t)q;
        if (!ties_away) {
            float rest = q - (float)whole;
            if (rest > 0.5f || (rest == 0.5f && whole % 2)) whole++;
            if (rest < -0.5f || (rest == -0.5f && whole % 2)) whole--;
        }
        tw_store(y, type, k, tw_clamp(whole + zero_point, -half, half - 1));
    }
    return 1;
}

/* A copy of flags that are 0; 0 if one is not */
int tw_expect_numbers(const int8_t *flags, int8_t *y, int32_t size) {
    for (int32_t k = 0; k < size; k++) {
        if (flags[k]) return 0;
        y[k] = 0;
    }
    return 1;
}

/* (x - zero_point) * scale of int8 or int16, by their bytes */
void tw_dequantize(const void *x, int32_t bytes, float *y, int32_t size, float scale, int32_t zero_point) {
    const int8_t *narrow = x;
    const int16_t *wide = x;
    for (int32_t k = 0; k < size; k++) y[k] = (float)((bytes == 1 ? narrow[k] : wide[k]) - zero_point) * scale;
}

void tw_lookup(const int8_t *x, int8_t *y, int32_t size, const int8_t *table) {
    for (int32_t k = 0; k < size; k++) y[k] = table[x[k] + 128];
}

/* Images of so many channels of inner values; a table of 256 values for each channel */
void tw_lookup_channels(const int8_t *x, int8_t *y, int32_t images, int32_t channels, int32_t inner,
                        const int8_t *tables) {
    for (int32_t n = 0; n < images; n++)
        for (int32_t channel = 0; channel < channels; channel++, x += inner, y += inner)
            tw_lookup(x, y, inner, tables + 256 * channel);
}

/* uint8 as int8, and back */
void tw_recode(const void *x, void *y, int32_t size) {
    const uint8_t *from = x;
    uint8_t *to = y;
    for (int32_t k = 0; k < size; k++) to[k] = from[k] ^ 128;
}

/* R(x - x_zero_point) + zero_point of integers, clamped to those of the type of y */
void tw_rescale_integers(const void *x, int32_t x_type, void *y, int32_t y_type, int32_t size, int32_t x_zero_point,
                         int32_t zero_point, int32_t multiplier, int32_t exponent) {
    int64_t most = y_type == TW_INT8 ? INT8_MAX : y_type == TW_INT16 ? INT16_MAX : INT32_MAX;
    for (int32_t k = 0; k < size; k++) {
        int64_t found = tw_scale(tw_load(x, x_type, k) - x_zero_point, multiplier, exponent);
        tw_store(y, y_type, k, tw_clamp(found + zero_point, -most - 1, most));
    }
}

void tw_narrow(const void *x, int32_t type, int8_t *y, int32_t size) {
    for (int32_t k = 0; k < size; k++) y[k] = (int8_t)tw_clamp(tw_load(x, type, k), INT8_MIN, INT8_MAX);
}

/* Numbers in another type: fractions are cut off, integers wrap. */
void tw_cast(const void *x, int32_t x_type, void *y, int32_t y_type, int32_t size) {
    const float *from = x;
    float *to = y;
    for (int32_t k = 0; k < size; k++) {
        if (x_type != TW_FLOAT32 && y_type == TW_FLOAT32)
            to[k] = (float)tw_load(x, x_type, k);
        else if (y_type == TW_FLOAT32)
            to[k] = from[k];
        else if (x_type == TW_FLOAT32) /* what is no int64 becomes the smallest one */
            tw_store(y, y_type, k, from[k] >= -0x1p63f && from[k] < 0x1p63f ? (int64_t)from[k] : INT64_MIN);
        else
            tw_store(y, y_type, k, tw_load(x, x_type, k));
    }
}
