#include "tw_text.h"

#include <stddef.h>
#include <string.h>

#define BYTES 3  /* the token of byte 0 */
#define SPELLED 6 /* bytes of such a token's piece, <0x0A> */

static uint32_t length(const tw_vocabulary *words, int32_t token)
{
    return words->at[token + 1] - words->at[token];
}

/* The order of the piece `token` and of the bytes a, then b. */
static int compare(const tw_vocabulary *words, int32_t token, const uint8_t *a, uint32_t na, const uint8_t *b,
                   uint32_t nb)
{
    const uint8_t *piece = words->bytes + words->at[token];
    uint32_t n = length(words, token), first = n < na ? n : na, second;
    int found = memcmp(piece, a, first);
    if (found != 0 || n < na)
        return found != 0 ? found : -1;
    second = n - na < nb ? n - na : nb;
    found = second > 0 ? memcmp(piece + na, b, second) : 0;
    if (found != 0)
        return found;
    return n > na + nb ? 1 : n < na + nb ? -1 : 0;
}

/* The token of the bytes a, then b; -1 where there is none. */
static int32_t find(const tw_vocabulary *words, const uint8_t *a, uint32_t na, const uint8_t *b, uint32_t nb)
{
    int32_t low = 0, high = words->pieces;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = compare(words, words->sorted[middle], a, na, b, nb);
        if (order == 0)
            return words->sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static int digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that a piece such as <0x0A> stands for; -1 where it is another. */
static int spelled(const tw_vocabulary *words, int32_t token)
{
    const uint8_t *piece = words->bytes + words->at[token];
    if (length(words, token) != SPELLED || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>' || digit(piece[3]) < 0
        || digit(piece[4]) < 0)
        return -1;
    return digit(piece[3]) * 16 + digit(piece[4]);
}

/* Bytes of a character in UTF-8 by its first; 0 where none begins so. */
static uint32_t bytes_of(uint8_t first)
{
    return first < 0x80 ? 1 : first >= 0xf8 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
}

/* Bytes of the character that begins here; 0 where they are not UTF-8. */
static uint32_t character(const uint8_t *text)
{
    uint32_t n = bytes_of(text[0]);
    for (uint32_t k = 1; k < n; k++)
        if ((text[k] & 0xc0) != 0x80)
            return 0;
    return n;
}

/* Merge neighbours while two of them make a piece: by rank, then from the left. */
static int32_t merge(const tw_vocabulary *words, int32_t *tokens, int32_t n)
{
    for (;;) {
        int32_t best = -1, at = 0;
        for (int32_t k = 0; k + 1 < n; k++) {
            int32_t token = find(words, words->bytes + words->at[tokens[k]], length(words, tokens[k]),
                                 words->bytes + words->at[tokens[k + 1]], length(words, tokens[k + 1]));
            if (token >= 0 && (best < 0 || words->rank[token] > words->rank[best])) {
                best = token;
                at = k;
            }
        }
        if (best < 0)
            return n;
        tokens[at] = best;
        n--;
        memmove(tokens + at + 1, tokens + at + 2, (size_t)(n - at - 1) * sizeof *tokens);
    }
}

int32_t tw_encode(const tw_vocabulary *words, const char *text, int32_t *tokens, int32_t most)
{
    const uint8_t *now = (const uint8_t *)text;
    int32_t n = 0, space = find(words, (const uint8_t *)" ", 1, now, 0);
    if (most < 2)
        return -1;
    tokens[n++] = TW_BEGIN;
    if (*now != 0 && space >= 0)
        tokens[n++] = space;
    while (*now != 0) {
        uint32_t size = character(now), k;
        int32_t token = size > 0 ? find(words, now, size, now, 0) : -1;
        if (size == 0 || n + (int32_t)size > most)
            return -1;
        if (token >= 0)
            tokens[n++] = token;
        for (k = 0; token < 0 && k < size; k++) {
            if (now[k] + BYTES >= words->size || spelled(words, now[k] + BYTES) != now[k])
                return -1;
            tokens[n++] = now[k] + BYTES;
        }
        now += size;
    }
    return merge(words, tokens, n);
}

int32_t tw_piece(const tw_vocabulary *words, int32_t previous, int32_t token, uint8_t *byte, const uint8_t **bytes)
{
    uint32_t n = length(words, token);
    *bytes = words->bytes + words->at[token];
    if (previous == TW_BEGIN && n > 0 && **bytes == ' ') {
        ++*bytes;
        return (int32_t)n - 1;
    }
    if (spelled(words, token) < 0)
        return (int32_t)n;
    *byte = (uint8_t)spelled(words, token);
    *bytes = byte;
    return 1;
}

int32_t tw_printable(const uint8_t *text, uint32_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* of a character of so many bytes */
    static const uint32_t refused[][2] = {{0, 0x08},         {0x0B, 0x1F},     {0x7F, 0x9F},     {0x61C, 0x61C},
                                          {0x200B, 0x200F},  {0x2028, 0x202E}, {0x2060, 0x206F}, {0xD800, 0xDFFF},
                                          {0xFEFF, 0xFEFF}, {0x110000, 0x1FFFFF}};
    uint32_t size = bytes_of(text[0]), code = size == 1 ? text[0] : text[0] & (0x7F >> size);
    for (uint32_t k = 1; k < size; k++) {
        if (k == n)
            return -1;
        if ((text[k] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (text[k] & 0x3F);
    }
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
        if (code >= refused[k][0] && code <= refused[k][1])
            return 0;
    return code < least[size] ? 0 : (int32_t)size;
}

int32_t tw_most_likely(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t k = 1; k < n; k++)
        if (logits[k] > logits[best])
            best = k;
    return best;
}
