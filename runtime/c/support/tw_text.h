/* Text of language models: byte pair encoding by a vocabulary of pieces, and the choice of the next token. */
#ifndef TW_TEXT_H
#define TW_TEXT_H

#include <stdint.h>

#define TW_BEGIN 1 /* the token before every text, and the one that ends it */

/* Token k is the bytes `at[k]` to `at[k + 1] - 1`; of two pieces that could be merged the one of higher rank is.
 * `sorted`: the tokens by their bytes, each piece once. */
typedef struct {
    int32_t size, pieces;
    const uint8_t *bytes;
    const uint32_t *at;
    const int32_t *rank, *sorted;
} tw_vocabulary;

/* The tokens of a text in UTF-8, behind the one that begins it: their number, -1 where they are more than `most` or no
 * token stands for a character. */
int32_t tw_encode(const tw_vocabulary *words, const char *text, int32_t *tokens, int32_t most);

/* The bytes that a token adds to a text behind the token `previous`: their number. They may be part of a character. */
int32_t tw_piece(const tw_vocabulary *words, int32_t previous, int32_t token, uint8_t *byte, const uint8_t **bytes);

/* Bytes of the character at the start of `n` bytes, 1 or more: 0 where they are not UTF-8, or would move a terminal's
 * cursor or turn its direction (newline and tab may), -1 where the rest of the character is missing. */
int32_t tw_printable(const uint8_t *text, uint32_t n);

/* The place of the largest of `n` logits, the first of several. */
int32_t tw_most_likely(const float *logits, int32_t n);

#endif
