/* int16 values as two bytes each: compile without contraction to fused operations. */
#include "tw_host.h"

/* size bytes: the high ones of all values, then the low ones less 128 */
void tw_split_bytes(const int16_t *x, int8_t *y, int32_t size) {
    for (int32_t k = 0; k < size / 2; k++) {
        y[k] = (int8_t)tw_floor_divide(x[k], 256);
        y[k + size / 2] = (int8_t)((x[k] & 255) - 128);
    }
}

/* (256 * high + low + (128 - zero_point) * sums) * (scale * weight_scale) + bias by channel; the high ones come first */
void tw_scale_bytes(const int32_t *acc, float *y, int32_t size, int32_t images, int32_t channels, float scale,
                    int32_t zero_point, const float *weight_scale, const float *bias, const int32_t *sums) {
    int32_t inner = size / (images * channels);
    for (int32_t k = 0; k < size; k++) {
        int32_t c = k / inner % channels;
        int64_t sum = 256 * (int64_t)acc[k] + acc[k + size] + (128 - zero_point) * (int64_t)sums[c];
        double real = (double)sum * ((double)scale * (double)weight_scale[c]);
        y[k] = (float)(real + (double)bias[c]);
    }
}
