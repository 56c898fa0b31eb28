/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tap - a small harness for the unit tests of pure modules
 *
 * A test program includes this once and writes TAP_TEST(name_that_says_it) { ... } as often as it
 * likes; main is here. It runs the tests in the order of the file, prints TAP (`1..N`, `ok i -
 * name`, `not ok i - name`), tells on stderr which check failed, with its values, and exits 1 if
 * any did. A function can be called before and after each test. An argument is a part of a name:
 * only the tests with that part run, with "-" before it only the other tests. It never forks and
 * keeps no state between tests: after a test that gave up, the program executes itself for the
 * other tests, because locks, descriptors and threads of that test may remain. A crash is a crash,
 * for the sanitizers to explain.
 */
#ifndef GMSFS_TESTS_UNIT_TAP_H
#define GMSFS_TESTS_UNIT_TAP_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAP_MAX_TESTS   512
#define TAP_SHOWN_BYTES 32

struct tap_test {
    const char *name;
    int line;
    void (*run)(void);
};

static struct tap_test tap_tests[TAP_MAX_TESTS];
static int tap_test_count;
static bool tap_failed;
static bool tap_gave_up;
static jmp_buf tap_give_up;
static void (*tap_before)(void);
static void (*tap_after)(void); /* not called after a require that failed */

/* Constructors may run in any order; the line gives the order in the file. */
__attribute__((unused)) static void tap_register(const char *name, int line, void (*run)(void))
{
    int at = tap_test_count;

    if (at == TAP_MAX_TESTS)
        return;
    while (at > 0 && tap_tests[at - 1].line > line) {
        tap_tests[at] = tap_tests[at - 1];
        at--;
    }
    tap_tests[at] = (struct tap_test){name, line, run};
    tap_test_count++;
}

#define TAP_TEST(name)                                                 \
    static void tap_test_##name(void);                                 \
    __attribute__((constructor)) static void tap_register_##name(void) \
    {                                                                  \
        tap_register(#name, __LINE__, tap_test_##name);                \
    }                                                                  \
    static void tap_test_##name(void)

/* At most one of each in a program. Nothing may point into the stack of the test that ended. */
#define TAP_BEFORE_EACH(function)                                 \
    __attribute__((constructor)) static void tap_set_before(void) \
    {                                                             \
        tap_before = (function);                                  \
    }
#define TAP_AFTER_EACH(function)                                 \
    __attribute__((constructor)) static void tap_set_after(void) \
    {                                                            \
        tap_after = (function);                                  \
    }

__attribute__((unused)) static bool tap_check(bool good, const char *file, int line,
                                              const char *text)
{
    if (!good) {
        fprintf(stderr, "# %s:%d: check failed: %s\n", file, line, text);
        tap_failed = true;
    }
    return good;
}

__attribute__((unused)) static bool tap_check_int(int64_t actual, int64_t expected,
                                                  const char *file, int line, const char *text)
{
    if (actual != expected) {
        fprintf(stderr,
                "# %s:%d: check failed: %s: got %" PRId64 " (0x%" PRIx64 "), expected %" PRId64
                " (0x%" PRIx64 ")\n",
                file, line, text, actual, (uint64_t)actual, expected, (uint64_t)expected);
        tap_failed = true;
    }
    return actual == expected;
}

__attribute__((unused)) static bool tap_check_str(const char *actual, const char *expected,
                                                  const char *file, int line, const char *text)
{
    bool good = actual && expected ? strcmp(actual, expected) == 0 : actual == expected;

    if (!good) {
        fprintf(stderr, "# %s:%d: check failed: %s: got \"%s\", expected \"%s\"\n", file, line,
                text, actual ? actual : "(null)", expected ? expected : "(null)");
        tap_failed = true;
    }
    return good;
}

__attribute__((unused)) static void tap_show_bytes(const char *label, const uint8_t *bytes,
                                                   size_t size, size_t from)
{
    fprintf(stderr, "#   %s at byte %zu:", label, from);
    for (size_t i = from; i < size && i < from + TAP_SHOWN_BYTES; i++)
        fprintf(stderr, " %02x", bytes[i]);
    fprintf(stderr, "\n");
}

__attribute__((unused)) static bool tap_check_bytes(const void *actual, size_t actual_size,
                                                    const void *expected, size_t expected_size,
                                                    const char *file, int line, const char *text)
{
    const uint8_t *a = actual;
    const uint8_t *e = expected;
    size_t at = 0;

    while (at < actual_size && at < expected_size && a[at] == e[at])
        at++;
    if (at == actual_size && at == expected_size)
        return true;
    fprintf(stderr, "# %s:%d: check failed: %s: %zu bytes, expected %zu\n", file, line, text,
            actual_size, expected_size);
    tap_show_bytes("got", a, actual_size, at);
    tap_show_bytes("expected", e, expected_size, at);
    tap_failed = true;
    return false;
}

/* Makes function_at(), for a variable that drops its value at the end of its block, e.g.
 * #define auto_fd __attribute__((unused, cleanup(close_at))) int */
#define TAP_DROP(function, type)                                \
    __attribute__((unused)) static void function##_at(type *at) \
    {                                                           \
        function(*at);                                          \
    }

TAP_DROP(close, int)
#define auto_fd __attribute__((unused, cleanup(close_at))) int

__attribute__((unused)) static void free_at(const void *at)
{
    void *bytes;

    memcpy(&bytes, at, sizeof bytes);
    free(bytes);
}
#define auto_free __attribute__((unused, cleanup(free_at)))

/* Each of these yields whether it held; the test goes on. Integers print in decimal and hex. */
#define check(condition) tap_check((condition), __FILE__, __LINE__, #condition)
#define check_int(actual, expected)                                           \
    tap_check_int((int64_t)(actual), (int64_t)(expected), __FILE__, __LINE__, \
                  #actual " == " #expected)
#define check_str(actual, expected) \
    tap_check_str((actual), (expected), __FILE__, __LINE__, #actual " == " #expected)
#define check_bytes(actual, actual_size, expected, expected_size)                             \
    tap_check_bytes((actual), (actual_size), (expected), (expected_size), __FILE__, __LINE__, \
                    #actual " == " #expected)

/* As check, but a failure ends the test, because the rest of it would make no sense. */
#define require(condition)                                           \
    do {                                                             \
        if (!tap_check((condition), __FILE__, __LINE__, #condition)) \
            longjmp(tap_give_up, 1);                                 \
    } while (0)

static bool tap_run(const struct tap_test *test)
{
    tap_failed = tap_gave_up = false;
    if (setjmp(tap_give_up) == 0) {
        if (tap_before)
            tap_before();
        test->run();
        if (tap_after)
            tap_after();
    } else {
        tap_gave_up = true;
    }
    return !tap_failed;
}

static bool tap_is_wanted(const struct tap_test *test, const char *part)
{
    return part[0] == '-' ? !strstr(test->name, part + 1) : strstr(test->name, part) != NULL;
}

/* Executes this program for the tests behind the first `number`. */
static void tap_go_on(char **argv, int number, int failures)
{
    char done[32];

    snprintf(done, sizeof done, "%d %d", number, failures);
    setenv("TAP_DONE", done, 1);
    execv("/proc/self/exe", argv);
}

/* Returns how many tests earlier images of this program ran, with their failures. */
static int tap_begin(int planned, int *failures)
{
    const char *text = getenv("TAP_DONE");
    int done = 0;

    if (!text || sscanf(text, "%d %d", &done, failures) != 2)
        printf("1..%d\n", planned);
    unsetenv("TAP_DONE");
    return done;
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    int planned = 0, number = 0, failures = 0;

    if (tap_test_count == TAP_MAX_TESTS) {
        printf("Bail out! more than %d tests in one program\n", TAP_MAX_TESTS - 1);
        return 1;
    }
    for (int i = 0; i < tap_test_count; i++)
        planned += tap_is_wanted(tap_tests + i, part);
    int done = tap_begin(planned, &failures);
    for (int i = 0; i < tap_test_count; i++) {
        if (!tap_is_wanted(tap_tests + i, part) || ++number <= done)
            continue;
        bool good = tap_run(&tap_tests[i]);
        failures += !good;
        printf("%s %d - %s\n", good ? "ok" : "not ok", number, tap_tests[i].name);
        fflush(stdout);
        if (tap_gave_up)
            tap_go_on(argv, number, failures);
    }
    return failures ? 1 : 0;
}

#endif
