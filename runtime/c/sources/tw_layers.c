/* Layers of weights that a program leaves to the host. Weights are int8 or int16 by their type;
 * accumulators wrap at 32 bits. */
#include "tw_host.h"

static uint32_t product(const int8_t *x, int32_t zero_point, const void *weights, int32_t type, int32_t k) {
    return (uint32_t)((*x - zero_point) * (int32_t)tw_load(weights, type, k));
}

/* p: images, channels, height, width, outputs, rows, columns, channels of a group, kernel height and width, strides,
 * pads at the top and left, dilations, groups, x zero point */
void tw_conv2d(const int8_t *x, int32_t *y, const void *weights, int32_t type, const int32_t *bias, const int32_t *p) {
    int32_t of_group = p[4] / p[16]; /* outputs */
    for (int32_t n = 0; n < p[0]; n++, x += p[1] * p[2] * p[3])
        for (int32_t o = 0; o < p[4]; o++)
            for (int32_t row = 0; row < p[5]; row++)
                for (int32_t column = 0; column < p[6]; column++) {
                    int32_t top = row * p[10] - p[12], left = column * p[11] - p[13], k = o * p[7] * p[8] * p[9];
                    uint32_t sum = (uint32_t)bias[o];
                    for (int32_t c = o / of_group * p[7]; c < (o / of_group + 1) * p[7]; c++)
                        for (int32_t i = top; i < top + p[8] * p[14]; i += p[14])
                            for (int32_t j = left; j < left + p[9] * p[15]; j += p[15], k++)
                                if (i >= 0 && i < p[2] && j >= 0 && j < p[3])
                                    sum += product(x + (c * p[2] + i) * p[3] + j, p[17], weights, type, k);
                    *y++ = (int32_t)sum;
                }
}

/* p as of tw_conv2d: the dilations and groups are 1; a pixel of the result collects what reaches it */
void tw_conv_transpose2d(const int8_t *x, int32_t *y, const void *weights, int32_t type, const int32_t *bias,
                         const int32_t *p) {
    for (int32_t n = 0; n < p[0]; n++, x += p[1] * p[2] * p[3])
        for (int32_t o = 0; o < p[4]; o++)
            for (int32_t row = p[12]; row < p[12] + p[5]; row++)
                for (int32_t column = p[13]; column < p[13] + p[6]; column++) {
                    int32_t first = o * p[7] * p[8] * p[9];
                    uint32_t sum = (uint32_t)bias[o];
                    for (int32_t i = 0; i < p[2]; i++)
                        for (int32_t j = 0; j < p[3]; j++) { /* the tap of the pixel that reaches this value */
                            int32_t v = row - i * p[10], h = column - j * p[11];
                            if (v < 0 || v >= p[8] || h < 0 || h >= p[9]) continue;
                            for (int32_t c = 0; c < p[7]; c++) {
                                int32_t k = first + (c * p[8] + v) * p[9] + h;
                                sum += product(x + (c * p[2] + i) * p[3] + j, p[17], weights, type, k);
                            }
                        }
                    *y++ = (int32_t)sum;
                }
}

/* Images of so many channels of inner values; per channel a multiplier, an exponent and a zero point in scales; once:
 * rounded once */
void tw_requantise_channels(const int32_t *x, int8_t *y, int32_t images, int32_t channels, int32_t inner,
                            const int32_t *scales, int32_t once, int32_t low, int32_t high) {
    for (int32_t n = 0; n < images; n++)
        for (int32_t channel = 0; channel < channels; channel++) {
            int32_t multiplier = scales[channel], exponent = scales[channels + channel];
            int32_t zero_point = scales[2 * channels + channel];
            for (int32_t k = 0; k < inner; k++)
                *y++ = (int8_t)tw_clamp(tw_rescale(*x++, multiplier, exponent, once) + zero_point, low, high);
        }
}

/* x times weights (units, features), plus biases; if scales are no null pointer each is rescaled and clamped to the
 * type of y, int16 or int32 */
void tw_dense(const int8_t *x, void *y, int32_t y_type, int32_t rows, int32_t features, int32_t units,
              const void *weights, int32_t type, const int32_t *bias, int32_t x_zero_point, const int32_t *scales) {
    int32_t at = 0, most = y_type == TW_INT16 ? INT16_MAX : INT32_MAX;
    for (int32_t row = 0; row < rows; row++, x += features)
        for (int32_t unit = 0; unit < units; unit++) {
            uint32_t sum = (uint32_t)bias[unit];
            for (int32_t k = 0; k < features; k++)
                sum += product(x + k, x_zero_point, weights, type, unit * features + k);
            int64_t found = scales ? tw_scale(sum, scales[unit], scales[units + unit]) : (int32_t)sum;
            tw_store(y, y_type, at++, tw_clamp(found, -(int64_t)most - 1, most));
        }
}

/* p: windows, filters, taps, units, zero point, multiplier, exponent */
void tw_filter(const int16_t *x, int8_t *y, const int16_t *weights, const int32_t *bias, const int32_t *p) {
    int32_t each = p[1] / p[3] * p[2]; /* taps of the filters of a unit */
    for (int32_t n = 0; n < p[0]; n++, x += p[1] * p[2])
        for (int32_t unit = 0; unit < p[3]; unit++) {
            uint32_t sum = (uint32_t)bias[unit];
            for (int32_t k = unit * each; k < (unit + 1) * each; k++) sum += (uint32_t)(x[k] * weights[k]);
            *y++ = tw_requantise(sum, p[5], p[6], p[4], -128, 127);
        }
}
