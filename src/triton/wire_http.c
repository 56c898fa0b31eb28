/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_http.h"

#include "base/hex.h"

#include <errno.h>
#include <string.h>

#define CHUNK_LINE_BYTES 20u /* a size of 16 digits, and two line ends */

static int refuse(struct wire_http_refusal *refusal, unsigned status, const char *text)
{
    *refusal = (struct wire_http_refusal){status, text};
    return -EPROTO;
}

/* Checks for characters allowed in names of methods and fields. */
static bool is_token(struct wire_text text)
{
    for (size_t i = 0; i < text.bytes; i++) {
        char at = text.at[i];
        bool is_alnum =
            (at >= '0' && at <= '9') || (at >= 'a' && at <= 'z') || (at >= 'A' && at <= 'Z');
        if (!is_alnum && (at == '\0' || !strchr("!#$%&'*+-.^_`|~", at)))
            return false;
    }
    return text.bytes > 0;
}

static bool is_printable(struct wire_text text, const char *also)
{
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t at = (uint8_t)text.at[i];
        if (at < 0x80 && (at <= ' ' || at == 0x7f) && (at == 0 || !strchr(also, at)))
            return false;
    }
    return true;
}

static bool cut_at(struct wire_text *rest, char byte, struct wire_text *word)
{
    const char *at = rest->bytes ? memchr(rest->at, byte, rest->bytes) : NULL;

    if (!at)
        return false;
    *word = (struct wire_text){rest->at, (size_t)(at - rest->at)};
    rest->bytes -= word->bytes + 1;
    rest->at = at + 1;
    return true;
}

static struct wire_text trim(struct wire_text text)
{
    while (text.bytes > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) {
        text.at++;
        text.bytes--;
    }
    while (text.bytes > 0 && (text.at[text.bytes - 1] == ' ' || text.at[text.bytes - 1] == '\t'))
        text.bytes--;
    return text;
}

/* Cuts off the origin that clients of a proxy send: http://HOST/PATH. */
static void cut_origin(struct wire_text *target, struct wire_text *host)
{
    if (wire_text_cut_front(target, "http://") && cut_at(target, '/', host)) {
        target->at--;
        target->bytes++;
    }
}

static int parse_request_line(struct wire_text line, struct wire_http_head *head,
                              struct wire_http_refusal *refusal)
{
    struct wire_text target, path;

    if (!cut_at(&line, ' ', &head->method) || !is_token(head->method) ||
        !cut_at(&line, ' ', &target) || !is_printable(target, ""))
        return refuse(refusal, 400, "the request line is malformed");
    if (!wire_text_is(line, "HTTP/1.1") && !wire_text_is(line, "HTTP/1.0")) {
        if (wire_text_cut_front(&line, "HTTP/"))
            return refuse(refusal, 505, "only HTTP/1.1 and HTTP/1.0 are served");
        return refuse(refusal, 400, "the request line is malformed");
    }
    head->is_kept = wire_text_is(line, "HTTP/1.1");
    head->is_old = !head->is_kept;
    cut_origin(&target, &head->authority);
    if (cut_at(&target, '?', &path))
        target = path;
    head->path = target;
    return 0;
}

/* Returns true if the comma-separated list has this word. */
static bool has_word(struct wire_text list, const char *word)
{
    struct wire_text item;

    while (cut_at(&list, ',', &item)) {
        if (wire_text_is_header(trim(item), word))
            return true;
    }
    return wire_text_is_header(trim(list), word);
}

/* Fields that a head may have once, and were seen. */
struct seen {
    bool length, encoding, host;
    bool name; /* the client named the server by neither an address nor localhost */
    unsigned fields;
};

/* ---- hosts --------------------------------------------------------------------------------- */

static bool is_digit(char at)
{
    return at >= '0' && at <= '9';
}

static bool is_hex(char at)
{
    return hex_digit(at) >= 0;
}

/* Four numbers below 256. */
static bool is_ipv4(struct wire_text text)
{
    unsigned numbers = 0, value = 0, digits = 0;

    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] == '.' && digits > 0 && ++numbers < 4) {
            value = digits = 0;
            continue;
        }
        value = 10 * value + (unsigned)(text.at[i] - '0');
        if (!is_digit(text.at[i]) || ++digits > 3 || value > 255)
            return false;
    }
    return numbers == 3 && digits > 0;
}

/* Eight groups of up to four digits; `::` stands once, for one or more groups; an IPv4 address may
 * replace the last two. */
static bool is_ipv6(struct wire_text text)
{
    unsigned groups = 0, digits = 0;
    bool has_gap = wire_text_cut_front(&text, "::");
    size_t begin = 0;

    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] == '.')
            return is_ipv4((struct wire_text){text.at + begin, text.bytes - begin}) &&
                   (has_gap ? groups < 6 : groups == 6);
        if (is_hex(text.at[i]) && ++digits <= 4)
            continue;
        if (text.at[i] != ':' || digits == 0 || digits > 4)
            return false;
        groups++;
        digits = 0;
        begin = i + 1;
        if (begin == text.bytes || text.at[begin] != ':')
            continue;
        if (has_gap)
            return false;
        has_gap = true;
        begin = ++i + 1;
    }
    if (digits == 0)
        return has_gap && groups < 8 && (text.bytes == 0 || text.at[text.bytes - 1] == ':') &&
               begin == text.bytes;
    return has_gap ? groups + 1 < 8 : groups + 1 == 8;
}

static bool is_registered_name(struct wire_text text)
{
    for (size_t i = 0; i < text.bytes; i++) {
        char at = text.at[i];
        bool is_alnum = is_hex(at) || ((at | 0x20) >= 'g' && (at | 0x20) <= 'z');
        if (at == '%' && text.bytes - i > 2 && is_hex(text.at[i + 1]) && is_hex(text.at[i + 2]))
            i += 2;
        else if (!is_alnum && (at == '\0' || !strchr("-._~!$&'()*+,;=", at)))
            return false;
    }
    return true;
}

/* ":" and a number, or nothing. */
static bool is_port(struct wire_text text)
{
    if (text.bytes == 0)
        return true;
    for (size_t i = 1; i < text.bytes; i++) {
        if (!is_digit(text.at[i]))
            return false;
    }
    return text.at[0] == ':' && text.bytes <= 6;
}

bool wire_http_is_authority(struct wire_text text)
{
    struct wire_text host;

    if (wire_text_cut_front(&text, "["))
        return cut_at(&text, ']', &host) && is_ipv6(host) && is_port(text);
    host = text;
    for (host.bytes = 0; host.bytes < text.bytes && text.at[host.bytes] != ':'; host.bytes++)
        ;
    return is_registered_name(host) &&
           is_port((struct wire_text){text.at + host.bytes, text.bytes - host.bytes});
}

/* Returns true if the host is no name that an attacker could point at this server. */
static bool is_address(struct wire_text host)
{
    struct wire_text name;

    if (host.bytes > 0 && host.at[0] == '[')
        return true;
    if (!cut_at(&host, ':', &name))
        name = host;
    if (wire_text_is_header(name, "localhost"))
        return true;
    for (size_t i = 0; i < name.bytes; i++) {
        if (name.at[i] != '.' && !is_digit(name.at[i]))
            return false;
    }
    return true;
}

static int parse_length(struct wire_text value, struct wire_http_head *head, struct seen *seen,
                        struct wire_http_refusal *refusal)
{
    uint64_t length_bytes;
    int error = wire_text_number(value, &length_bytes);

    if (error == -ERANGE)
        return refuse(refusal, 413, "Content-Length is beyond all bounds");
    if (error || seen->length)
        return refuse(refusal, 400, "Content-Length is malformed");
    seen->length = true;
    head->length_bytes = length_bytes;
    return 0;
}

static int parse_transfer_encoding(struct wire_text value, struct wire_http_head *head,
                                   struct seen *seen, struct wire_http_refusal *refusal)
{
    if (seen->encoding || !wire_text_is_header(value, "chunked"))
        return refuse(refusal, 501, "only chunked is known as a Transfer-Encoding");
    seen->encoding = head->is_chunked = true;
    return 0;
}

static int parse_field(struct wire_text name, struct wire_text value, struct wire_http_head *head,
                       struct seen *seen, struct wire_http_refusal *refusal)
{
    if (wire_text_is_header(name, "Content-Length"))
        return parse_length(value, head, seen, refusal);
    if (wire_text_is_header(name, "Transfer-Encoding"))
        return parse_transfer_encoding(value, head, seen, refusal);
    if (wire_text_is_header(name, "Connection")) {
        if (has_word(value, "close"))
            head->is_kept = false;
    } else if (wire_text_is_header(name, "Expect")) {
        if (!wire_text_is_header(value, "100-continue"))
            return refuse(refusal, 417, "only 100-continue can be expected");
        head->wants_continue = true;
    } else if (wire_text_is_header(name, "Origin")) {
        /* A browser runs as its user, but an attacker may have written the page that makes it
         * ask. */
        return refuse(refusal, 403, "requests of web pages are not served");
    } else if (wire_text_is_header(name, "Host")) {
        if (seen->host || !wire_http_is_authority(value))
            return refuse(refusal, 400, "Host is malformed, or stands twice");
        seen->host = true;
        seen->name = !is_address(value);
    } else if (wire_text_is_header(name, "gmsfs-session")) {
        if (head->session.at)
            return refuse(refusal, 400, "gmsfs-session stands twice");
        head->session = value;
    } else if (wire_text_is_header(name, "Content-Encoding")) {
        if (!head->encoding.at || wire_text_is_header(head->encoding, "identity"))
            head->encoding = value;
    } else if (wire_text_is_header(name, "Inference-Header-Content-Length")) {
        if (head->has_json_bytes || wire_text_number(value, &head->json_bytes))
            return refuse(refusal, 400, "Inference-Header-Content-Length is malformed");
        head->has_json_bytes = true;
    }
    return 0;
}

static int parse_fields(struct wire_text rest, struct wire_http_head *head,
                        struct wire_http_refusal *refusal)
{
    struct seen seen = {0};
    struct wire_text line, name;

    while (cut_at(&rest, '\n', &line)) {
        if (!wire_text_cut_back(&line, "\r"))
            return refuse(refusal, 400, "a line does not end with CRLF");
        if (line.bytes == 0)
            break;
        if (++seen.fields > WIRE_HTTP_MAX_FIELDS)
            return refuse(refusal, 431, "there are more header fields than are taken");
        if (!cut_at(&line, ':', &name) || !is_token(name) || !is_printable(line, " \t"))
            return refuse(refusal, 400, "a header field is malformed");
        int error = parse_field(name, trim(line), head, &seen, refusal);
        if (error)
            return error;
    }
    if (seen.length && seen.encoding)
        return refuse(refusal, 400, "Content-Length stands beside Transfer-Encoding");
    if (seen.encoding && head->is_old)
        return refuse(refusal, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (!seen.host && !head->is_old)
        return refuse(refusal, 400, "Host is missing");
    if (head->authority.at && !wire_http_is_authority(head->authority))
        return refuse(refusal, 400, "the target's host is malformed");
    if (head->authority.at)
        seen.name = !is_address(head->authority);
    /* A page may have been loaded by a name that points here now; its requests have no Origin
     * then. */
    if (seen.name && !head->session.at)
        return refuse(refusal, 403,
                      "the request names the server by neither localhost nor an address, as a web "
                      "page might do: use one of these, or send gmsfs-session");
    return 0;
}

/* Returns the position after the empty line that ends the head, by either line end; 0: not received
 * yet. */
static size_t find_end(const char *bytes, size_t size, size_t *scanned)
{
    for (size_t i = *scanned; i < size; i++) {
        if (bytes[i] != '\n')
            continue;
        if ((i >= 1 && bytes[i - 1] == '\n') || (i >= 2 && memcmp(bytes + i - 2, "\n\r\n", 3) == 0))
            return i + 1;
    }
    *scanned = size;
    return 0;
}

int wire_http_parse(const char *bytes, size_t size, size_t *scanned, struct wire_http_head *head,
                    struct wire_http_refusal *refusal)
{
    size_t skipped = 0;
    struct wire_text line, rest;

    /* Some empty lines before a request are allowed. */
    while (size - skipped >= 2 && skipped < 2 * WIRE_HTTP_MAX_EMPTY &&
           memcmp(bytes + skipped, "\r\n", 2) == 0)
        skipped += 2;
    if (*scanned < skipped)
        *scanned = skipped;
    *head = (struct wire_http_head){0};
    size_t end = size == skipped ? 0 : find_end(bytes, size, scanned);
    if ((end ? end : size) > WIRE_HTTP_MAX_HEAD_BYTES)
        return refuse(refusal, 431, "the request's head is longer than is taken");
    if (end == 0)
        return -EAGAIN;
    rest = (struct wire_text){bytes + skipped, end - skipped};
    head->head_bytes = end;
    if (!cut_at(&rest, '\n', &line) || !wire_text_cut_back(&line, "\r"))
        return refuse(refusal, 400, "a line does not end with CRLF");
    int error = parse_request_line(line, head, refusal);
    return error ? error : parse_fields(rest, head, refusal);
}

void wire_http_body_begin(struct wire_http_body *body, const struct wire_http_head *head)
{
    *body = (struct wire_http_body){.is_chunked = head->is_chunked};
    if (head->is_chunked) {
        body->phase = WIRE_HTTP_SIZE;
        return;
    }
    body->left_bytes = body->total_bytes = head->length_bytes;
    body->phase = body->left_bytes ? WIRE_HTTP_DATA : WIRE_HTTP_ENDED;
}

static int take_size_digit(struct wire_http_body *body, char digit)
{
    int value = hex_digit(digit);

    if (value < 0 || body->left_bytes >> 60)
        return -EPROTO;
    body->left_bytes = body->left_bytes << 4 | (unsigned)value;
    body->has_digit = true;
    return 0;
}

/* Returns false if the chunks are mostly extensions. */
static bool count_excess(struct wire_http_body *body)
{
    uint64_t needed_bytes = CHUNK_LINE_BYTES + (body->left_bytes < WIRE_HTTP_MAX_EXCESS_BYTES
                                                    ? body->left_bytes
                                                    : WIRE_HTTP_MAX_EXCESS_BYTES);

    body->excess_bytes += body->line_bytes;
    body->excess_bytes -=
        needed_bytes < body->excess_bytes ? (uint32_t)needed_bytes : body->excess_bytes;
    return body->excess_bytes <= WIRE_HTTP_MAX_EXCESS_BYTES;
}

static int end_size(struct wire_http_body *body)
{
    if (!count_excess(body))
        return -EPROTO;
    if (body->left_bytes == 0) {
        body->phase = WIRE_HTTP_TRAILER;
        return 0;
    }
    if (++body->chunks > WIRE_HTTP_MAX_CHUNKS ||
        __builtin_add_overflow(body->total_bytes, body->left_bytes, &body->total_bytes))
        return -EPROTO;
    body->phase = WIRE_HTTP_DATA;
    return 0;
}

/* Sets the phase that follows this byte. A negative errno: the byte is not allowed. */
static int take_mark(struct wire_http_body *body, char byte)
{
    if (++body->line_bytes > WIRE_HTTP_MAX_LINE_BYTES)
        return -EPROTO;
    switch (body->phase) {
    case WIRE_HTTP_SIZE:
        if (body->has_digit && (byte == ';' || byte == ' ' || byte == '\t'))
            body->phase = WIRE_HTTP_EXTENSION;
        else if (body->has_digit && byte == '\r')
            body->phase = WIRE_HTTP_SIZE_END;
        else
            return take_size_digit(body, byte);
        return 0;
    case WIRE_HTTP_EXTENSION:
        if (byte == '\r')
            body->phase = WIRE_HTTP_SIZE_END;
        return byte == '\n' ? -EPROTO : 0;
    case WIRE_HTTP_SIZE_END:
        return byte == '\n' ? end_size(body) : -EPROTO;
    case WIRE_HTTP_DATA_CR:
        body->phase = WIRE_HTTP_DATA_END;
        return byte == '\r' ? 0 : -EPROTO;
    case WIRE_HTTP_DATA_END:
        body->phase = WIRE_HTTP_SIZE;
        body->has_digit = false;
        body->line_bytes = 0;
        return byte == '\n' ? 0 : -EPROTO;
    case WIRE_HTTP_TRAILER:
        body->phase = byte == '\r' ? WIRE_HTTP_LAST_END : WIRE_HTTP_TRAILER_LINE;
        return byte == '\n' ? -EPROTO : 0;
    case WIRE_HTTP_TRAILER_LINE:
        if (byte == '\r')
            body->phase = WIRE_HTTP_TRAILER_LINE_END;
        return byte == '\n' ? -EPROTO : 0;
    case WIRE_HTTP_TRAILER_LINE_END:
        body->phase = WIRE_HTTP_TRAILER;
        return byte == '\n' ? 0 : -EPROTO;
    default: /* LAST_END */
        body->phase = WIRE_HTTP_ENDED;
        return byte == '\n' ? 0 : -EPROTO;
    }
}

int wire_http_body_take(struct wire_http_body *body, const char *bytes, size_t size, size_t *taken,
                        struct wire_text *data, struct wire_http_refusal *refusal)
{
    *data = (struct wire_text){0};
    for (*taken = 0; *taken < size && body->phase != WIRE_HTTP_ENDED;) {
        if (body->phase == WIRE_HTTP_DATA) {
            size_t count = size - *taken;
            if (count > body->left_bytes)
                count = body->left_bytes;
            *data = (struct wire_text){bytes + *taken, count};
            *taken += count;
            body->left_bytes -= count;
            body->line_bytes = 0;
            if (body->left_bytes == 0)
                body->phase = body->is_chunked ? WIRE_HTTP_DATA_CR : WIRE_HTTP_ENDED;
            break;
        }
        if (take_mark(body, bytes[(*taken)++]))
            return refuse(refusal, 400, "the chunks of the body are malformed, or too many");
    }
    return body->phase == WIRE_HTTP_ENDED ? 0 : -EAGAIN;
}

const char *wire_http_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return "Error";
}
