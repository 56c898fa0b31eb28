/* SPDX-License-Identifier: Apache-2.0 */
/* auto_layout - a variable with a layout, freed at the end of the block */
#ifndef GMSFS_TESTS_UNIT_AUTO_LAYOUT_H
#define GMSFS_TESTS_UNIT_AUTO_LAYOUT_H

#include "tap.h"

#include "meta/layout.h"

TAP_DROP(layout_free, struct layout *)
#define auto_layout __attribute__((unused, cleanup(layout_free_at))) struct layout

#endif
