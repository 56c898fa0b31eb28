/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps - the calls before which a worker or a copier can be killed, besides those of points.h
 *
 * No include guard: included with STEP defined. The Makefile reads it too, like points.h. Together
 * with those of points.h that kill_is_step knows, they are all that other processes can see of a
 * worker: records, answers, messages, memory, jobs. The last ones are a copier's.
 */
STEP(journal_add)
STEP(journal_publish)
STEP(journal_set_delivered)
STEP(write)
STEP(writev)
STEP(keep_drop)
STEP(helpers_submit_promised)
STEP(lanes_add)
STEP(files_enter)
STEP(files_leave)
STEP(files_forget)
STEP(lane_file_read)
STEP(lane_file_write)
STEP(copier_put_result)
