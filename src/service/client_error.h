/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_error - our errno values, translated for clients
 *
 * EMFILE would tell clients that they may not open more files, and they would look at their own
 * limit.
 */
#ifndef GMSFS_SERVICE_CLIENT_ERROR_H
#define GMSFS_SERVICE_CLIENT_ERROR_H

#include <errno.h>

static inline int service_error_for_client(int error)
{
    return error == -EMFILE ? -ENFILE : error;
}

#endif
