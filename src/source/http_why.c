/* SPDX-License-Identifier: Apache-2.0 */
/* Why an attempt failed, and whether another may succeed. */
#include "source/http_internal.h"

#include "base/clean.h"

#include <errno.h>
#include <stdio.h>

/* ---- answers that are errors ---------------------------------------------------------------- */

static int status_error(unsigned status)
{
    switch (status) {
    case 400:
    case 405:
        return -EBADRQC;
    case 401:
    case 403:
    case 407:
        return -EACCES;
    case 404:
    case 410:
        return -ENOENT;
    case 412:
        return -ESTALE;
    case 416:
        return -ENODATA;
    case 429:
        return -EBUSY;
    case 503:
        return -EAGAIN;
    default:
        return status >= 300 && status < 400 ? -ELOOP : -EIO;
    }
}

static bool status_passes(unsigned status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

static const char *status_advice(const struct flow *flow, const struct http_auth *auth)
{
    const unsigned status = flow->reply.status;

    if (status == 400 && flow->peer && !flow->peer->cert)
        return ": it may ask for a certificate of this client; name one with --tls-cert and "
               "--tls-key";
    if (status == 401 && !auth)
        return ": it asks for a user and a password; put them into ~/.netrc";
    if (status == 403 && flow->peer)
        return ": its server may not read the store (the store's mode and owner tell), or refuses "
               "this client";
    if (status == 403 && !auth)
        return ": it refuses this user; look at ~/.netrc, or for a fresh address if it is signed";
    if ((status == 404 || status == 410) && !auth && !flow->peer)
        return ": nothing is at this address; look at its spelling, and if it has expired";
    if (status == 407)
        return ": the proxy asks for a user and a password; put them into https_proxy";
    if (status == 429 || status == 503)
        return ": it is busy; try again later, or with fewer --threads";
    return status >= 300 && status < 400 ? ": it leads to another address, which is not followed"
                                         : "";
}

static int judge_status(struct flow *flow, const struct http_auth *auth, struct http_tries *tries,
                        bool *passes, struct failure *failure)
{
    const unsigned status = flow->reply.status;
    char words[48], more[1024] = "";

    *passes = status_passes(status);
    tries->pause_s = http_reply_get_pause_s(&flow->reply);
    if (flow->peer)
        atomic_store(flow->peer->retry_s, tries->pause_s);
    if (auth && auth->explain) {
        snprintf(more, sizeof(more), "%.*s", (int)sizeof(more) - 1, flow->refusal);
        auth->explain(auth, &flow->reply, more, sizeof(more));
        clean_text(more);
    }
    return failure_set(failure, status == 403 && flow->peer ? -EPERM : status_error(status),
                       "the server answers %s%s", http_reply_status_text(status, words),
                       more[0] ? more : status_advice(flow, auth));
}

/* ---- transfers that failed ------------------------------------------------------------------ */

static const struct result {
    CURLcode result;
    int error;
    bool passes;       /* always */
    bool known;        /* passes only if the server has answered before */
    const char *words; /* before libcurl's; NULL: libcurl's alone */
} results[] = {
    {CURLE_COULDNT_RESOLVE_HOST, -EHOSTUNREACH, false, true, "the name of the server is unknown"},
    {CURLE_COULDNT_RESOLVE_PROXY, -EHOSTUNREACH, false, true, "the name of the proxy is unknown"},
    {CURLE_COULDNT_CONNECT, -ECONNREFUSED, false, true, "the server cannot be reached"},
    {CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT, true, true, "the server is silent"},
    {CURLE_SSL_CONNECT_ERROR, -EPROTO, false, true,
     "no TLS connection; if the server has no TLS, name it by http://"},
    {CURLE_PEER_FAILED_VERIFICATION, -EKEYREJECTED, false, false,
     "the server's certificate is not trusted; if it is your own, name its authority's file in "
     "CURL_CA_BUNDLE"},
    {CURLE_SSL_CERTPROBLEM, -EKEYREJECTED, false, false,
     "this client's own certificate or key cannot be used"},
    {CURLE_SSL_CACERT_BADFILE, -EKEYREJECTED, false, false,
     "the trusted certificates cannot be read (CURL_CA_BUNDLE, SSL_CERT_FILE)"},
    {CURLE_TOO_MANY_REDIRECTS, -ELOOP, false, false, "too many redirects"},
    {CURLE_UNSUPPORTED_PROTOCOL, -EPROTONOSUPPORT, false, false,
     "the address, or a redirect, has a scheme that is not allowed there"},
    {CURLE_URL_MALFORMAT, -EINVAL, false, false, "this is no valid address"},
    {CURLE_OUT_OF_MEMORY, -ENOMEM, false, false, "out of memory"},
    {CURLE_PARTIAL_FILE, -ECONNRESET, true, true, "the connection was cut"},
    {CURLE_GOT_NOTHING, -ECONNRESET, true, true, "the connection was cut"},
    {CURLE_RECV_ERROR, -ECONNRESET, true, true, "the connection was cut"},
    {CURLE_SEND_ERROR, -ECONNRESET, true, true, "the connection was cut"},
    {CURLE_HTTP2, -ECONNRESET, true, true, "the connection was cut"},
    {CURLE_HTTP2_STREAM, -ECONNRESET, true, true, "the connection was cut"},
};

static int judge_result(struct flow *flow, struct http_tries *tries, bool *passes,
                        struct failure *failure)
{
    const char *text = flow->text[0] ? flow->text : flow->curl->easy_strerror(flow->result);

    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        const struct result *row = &results[i];

        if (row->result != flow->result)
            continue;
        *passes = row->passes || (row->known && tries->is_known);
        return failure_set(failure, row->error, "%s (%s)", row->words, text);
    }
    return failure_set(failure, -EIO, "the transfer failed: %s", text);
}

/* ---- all ------------------------------------------------------------------------------------ */

int http_judge(struct flow *flow, const struct http_auth *auth, int move_error,
               struct http_tries *tries, bool *passes, struct failure *failure)
{
    *passes = false;
    tries->pause_s = 0;
    if (move_error == -ECANCELED)
        return move_error;
    if (move_error == -ETIMEDOUT)
        return failure_set(failure, move_error, "it sent too little within %u s",
                           (atomic_load(flow->peer->most_ms) + 500u) / 1000u);
    if (move_error)
        return failure_no_memory(failure);
    if (flow->error) {
        *passes = flow->passes;
        if (flow->error == -E2BIG && flow->reply.bytes > 0 && !flow->is_begun)
            failure_set(failure, -E2BIG,
                        "the headers of the server's answer have more than %u bytes",
                        HTTP_REPLY_MAX_BYTES);
        return flow->error;
    }
    if (flow->is_done && flow->reply.status >= 300 &&
        (flow->result == CURLE_OK || flow->result == CURLE_WRITE_ERROR))
        return judge_status(flow, auth, tries, passes, failure);
    if (flow->is_done && flow->result != CURLE_OK)
        return judge_result(flow, tries, passes, failure);
    return 0;
}
