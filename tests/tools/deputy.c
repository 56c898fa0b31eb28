/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deputy - a set-user-ID program whose error message its caller chooses, like that of sudo -p
 *
 *   deputy TEXT        writes TEXT to standard error
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    if (write(STDERR_FILENO, argv[1], strlen(argv[1])) < 0) {
        perror("write"); /* if it was standard error that failed, no one sees this */
        return 1;
    }
    return 0;
}
