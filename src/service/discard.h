/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discard - frees objects that may take long to free, off the loop
 *
 * On the loop's thread. `free_it` is called once, by a helper thread or, if there is none, at once;
 * it must not touch the service. A NULL object is ignored.
 */
#ifndef GMSFS_SERVICE_DISCARD_H
#define GMSFS_SERVICE_DISCARD_H

struct blob;
struct service;

void service_discard(struct service *s, void (*free_it)(void *object), void *object);
/* Gives one reference up. */
void service_discard_blob(struct service *s, struct blob *blob);
/* Frees the core's garbage, at the end of the step. */
void service_discard_garbage(struct service *s);

#endif
