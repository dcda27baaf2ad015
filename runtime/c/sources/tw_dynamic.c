/* Dynamic quantisation: compile without contraction to fused operations. */
#include "tw_host.h"

/* The least and the largest of 0 and the values; 0 if one is not finite */
int tw_value_range(const float *x, float *ends, int32_t rows, int32_t size) {
    ends[0] = ends[1] = 0.0f;
    for (int32_t k = 0; k < rows * size; k++) {
        if (!(x[k] - x[k] == 0.0f)) return 0;
        if (x[k] < ends[0]) ends[0] = x[k];
        if (x[k] > ends[1]) ends[1] = x[k];
    }
    return 1;
}

/* A 255th of the range, or 1 of none; 0 if float32 has no number so small */
int tw_range_scale(const float *ends, float *scale) {
    *scale = ends[0] == ends[1] ? 1.0f : (ends[1] - ends[0]) / 255.0f;
    return *scale != 0.0f;
}

/* The nearest integer, ties to even, of a number that fits int32 */
static int32_t nearest(float x) {
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    if (rest > 0.5f || (rest == 0.5f && whole % 2)) whole++;
    if (rest < -0.5f || (rest == -0.5f && whole % 2)) whole--;
    return whole;
}

void tw_range_zero_point(const float *ends, const float *scale, uint8_t *zero_point) {
    float steps = 0.0f - ends[0] / *scale;
    *zero_point = (uint8_t)nearest(steps < 0.0f ? 0.0f : steps > 255.0f ? 255.0f : steps);
}

/* clamp(round(x / scale) + zero_point, 0, 255) - 128 */
void tw_quantize_by(const float *x, const float *scale, const uint8_t *zero_point, int8_t *y, int32_t size) {
    for (int32_t k = 0; k < size; k++) {
        float q = x[k] / *scale;
        q = q > 1024.0f ? 1024.0f : q < -1024.0f ? -1024.0f : q; /* all further out become the same */
        y[k] = (int8_t)(tw_clamp(nearest(q) + *zero_point, 0, 255) - 128);
    }
}

/* acc - (zero_point - 128) * sums, of so many channels of inner elements, outer times */
void tw_subtract_zero_point(const int32_t *acc, const uint8_t *zero_point, int32_t *y, int32_t outer, int32_t channels,
                            int32_t inner, const int32_t *sums) {
    uint32_t moved = (uint32_t)*zero_point - 128u;
    for (int32_t n = 0; n < outer; n++)
        for (int32_t c = 0; c < channels; c++)
            for (int32_t k = 0; k < inner; k++) *y++ = (int32_t)((uint32_t)*acc++ - moved * (uint32_t)sums[c]);
}

/* That, times scale, plus bias unless that is a null pointer, and at least 0 with relu; both of the next channel are so many numbers further on */
void tw_scale_sums(const int32_t *acc, const uint8_t *zero_point, float *y, int32_t outer, int32_t channels,
                   int32_t inner, const int32_t *sums, const float *scale, int32_t scale_step, const float *bias,
                   int32_t bias_step, int32_t relu) {
    uint32_t moved = (uint32_t)*zero_point - 128u;
    for (int32_t n = 0; n < outer; n++)
        for (int32_t c = 0; c < channels; c++)
            for (int32_t k = 0; k < inner; k++) {
                float product = (float)(int32_t)((uint32_t)*acc++ - moved * (uint32_t)sums[c]) * scale[c * scale_step];
                float value = bias ? product + bias[c * bias_step] : product;
                *y++ = relu && value < 0.0f ? 0.0f : value;
            }
}
