/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_get - members of a JSON object, where a missing one is 0, "" or false
 *
 * For documents of other programs and other releases. The texts live as long as the object.
 */
#ifndef GMSFS_BASE_JSON_GET_H
#define GMSFS_BASE_JSON_GET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

static inline uint64_t json_get_number(const json_t *object, const char *name)
{
    json_int_t number = json_integer_value(json_object_get(object, name));

    return number > 0 ? (uint64_t)number : 0;
}

static inline const char *json_get_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

static inline bool json_get_flag(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

#endif
