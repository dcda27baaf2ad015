#include "tw_host.h"

int tw_quantize(const float *x, int8_t *y, int32_t size, float scale, int32_t zero_point, int32_t ties_away) {
    for (int32_t k = 0; k < size; k++) {
        float q = x[k] / scale;
        if (x[k] != x[k]) return 0;
        q = q > 1024.0f ? 1024.0f : q < -1024.0f ? -1024.0f : q; /* all further out become the same */
        if (ties_away) q += q < 0.0f ? -0.5f : 0.5f;
        int32_t whole = (int32_t)q;
        if (!ties_away) {
            float rest = q - (float)whole;
            if (rest > 0.5f || (rest == 0.5f && whole % 2)) whole++;
            if (rest < -0.5f || (rest == -0.5f && whole % 2)) whole--;
        }
        y[k] = (int8_t)tw_clamp(whole + zero_point, -128, 127);
    }
    return 1;
}

void tw_dequantize(const void *x, int32_t bytes, float *y, int32_t size, float scale, int32_t zero_point) {
    const int8_t *narrow = x;
    const int16_t *wide = x;
    for (int32_t k = 0; k < size; k++) y[k] = (float)((bytes == 1 ? narrow[k] : wide[k]) - zero_point) * scale;
}

void tw_lookup(const int8_t *x, int8_t *y, int32_t size, const int8_t *table) {
    for (int32_t k = 0; k < size; k++) y[k] = table[x[k] + 128];
}

void tw_recode(const void *x, void *y, int32_t size) {
    const uint8_t *from = x;
    uint8_t *to = y;
    for (int32_t k = 0; k < size; k++) to[k] = from[k] ^ 128;
}
