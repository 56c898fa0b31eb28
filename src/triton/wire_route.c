/* SPDX-License-Identifier: Apache-2.0 */
/* Paths. A name may contain slashes: clients do not quote them. */
#include "triton/wire_rest.h"

#include <errno.h>

struct verb_row {
    const char *word;
    enum wire_verb verb;
    const char *method;
};

static const struct verb_row fixed_paths[] = {
    {"/v2/health/live", WIRE_LIVE, "GET"},
    {"/v2/health/ready", WIRE_READY, "GET"},
    {"/v2", WIRE_METADATA, "GET"},
    {"/v2/", WIRE_METADATA, "GET"},
};

static const struct verb_row region_verbs[] = {
    {"/register", WIRE_REGISTER, "POST"},
    {"/unregister", WIRE_UNREGISTER, "POST"},
    {"/status", WIRE_STATUS, "GET"},
};

static const struct verb_row model_verbs[] = {
    {"/ready", WIRE_MODEL_READY, "GET"},
    {"/infer", WIRE_INFER, "POST"},
};

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static int take_verb(const struct verb_row *row, struct wire_text method,
                     struct wire_request *request)
{
    request->verb = row->verb;
    return wire_text_is(method, row->method) ? 0 : -EOPNOTSUPP;
}

static int unquote(struct wire_text *text)
{
    return wire_unquote((char *)text->at, &text->bytes);
}

static int route_region(struct wire_text path, struct wire_text method,
                        struct wire_request *request)
{
    for (size_t i = 0; i < ROWS(region_verbs); i++) {
        struct wire_text name = path;
        if (!wire_text_cut_back(&name, region_verbs[i].word))
            continue;
        if (name.bytes > 0 && (!wire_text_cut_front(&name, "/region/") || name.bytes == 0))
            return -ENOENT;
        request->name = name;
        int error = take_verb(&region_verbs[i], method, request);
        return error ? error : unquote(&request->name);
    }
    return -ENOENT;
}

/* M or M/versions/V */
static int cut_version(struct wire_text *model, struct wire_text *version)
{
    static const char mark[] = "/versions/";

    for (size_t at = model->bytes; at-- > 0;) {
        struct wire_text rest = {model->at + at, model->bytes - at};
        if (!wire_text_cut_front(&rest, mark))
            continue;
        *version = rest;
        model->bytes = at;
        break;
    }
    int error = unquote(version);
    return error ? error : unquote(model);
}

static int route_model(struct wire_text path, struct wire_text method, struct wire_request *request)
{
    for (size_t i = 0; i < ROWS(model_verbs); i++) {
        request->model = path;
        if (!wire_text_cut_back(&request->model, model_verbs[i].word) || request->model.bytes == 0)
            continue;
        int error = take_verb(&model_verbs[i], method, request);
        return error ? error : cut_version(&request->model, &request->version);
    }
    return -ENOENT;
}

int wire_rest_route(struct wire_text method, char *path, size_t path_bytes,
                    struct wire_request *request)
{
    struct wire_text rest = {path, path_bytes};

    *request = (struct wire_request){0};
    for (size_t i = 0; i < ROWS(fixed_paths); i++) {
        if (wire_text_is(rest, fixed_paths[i].word))
            return take_verb(&fixed_paths[i], method, request);
    }
    if (wire_text_cut_front(&rest, "/v2/models/"))
        return route_model(rest, method, request);
    if (wire_text_cut_front(&rest, "/v2/systemsharedmemory"))
        request->kind = GMSFS_REGION_SYSTEM;
    else if (wire_text_cut_front(&rest, "/v2/cudasharedmemory"))
        request->kind = GMSFS_REGION_CUDA;
    else
        return -ENOENT;
    return route_region(rest, method, request);
}
