/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts under random changes; tests/fault/layout.c does the same where memory fails. */
#include "auto_layout.h"
#include "layout_model.h"

#include <pthread.h>

#define ROUNDS 12000

TAP_TEST(random_changes_of_clones_agree_with_a_plain_model)
{
    static struct deed deed;

    models_start(20240607);
    for (int round = 0; round < ROUNDS; round++) {
        if (!deed_choose(&deed))
            continue;
        require(deed_try(&deed) == 0);
        deed_note(&deed);
        if (round % 20 == 0)
            model_compare(deed.kind == DEED_FREE ? pick_model(true) : deed.model);
        if (deed_makes_one(&deed))
            model_compare(deed.clone);
    }
    models_end();
}

/* ---- two threads --------------------------------------------------------------------------- */

/* Layouts on their way to the thread that reads and frees them, with the expected encoding. */
#define MAILBOX 8

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct letter {
        struct layout *layout;
        uint8_t hash[16];
    } letters[MAILBOX];
    size_t count;
    bool over;
    size_t wrong, read;
} mailbox = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool hash_layout(const struct layout *layout, uint8_t hash[16])
{
    uint8_t *bytes;
    size_t size;

    if (layout_encode(layout, &bytes, &size) < 0)
        return false;
    layout_hash(bytes, size, hash);
    free(bytes);
    return true;
}

static bool take_letter(struct letter *letter)
{
    bool taken = false;

    pthread_mutex_lock(&mailbox.mutex);
    while (mailbox.count == 0 && !mailbox.over)
        pthread_cond_wait(&mailbox.changed, &mailbox.mutex);
    if (mailbox.count > 0) {
        *letter = mailbox.letters[--mailbox.count];
        taken = true;
        pthread_cond_broadcast(&mailbox.changed);
    }
    pthread_mutex_unlock(&mailbox.mutex);
    return taken;
}

static void *read_and_free(void *unused)
{
    struct letter letter;
    uint8_t hash[16];
    char message[256];

    (void)unused;
    while (take_letter(&letter)) {
        struct layout *clone = layout_clone(letter.layout);
        size_t culprit;

        mailbox.read++;
        layout_check(letter.layout, false, message, sizeof message);
        if (!hash_layout(letter.layout, hash) || memcmp(hash, letter.hash, sizeof hash) != 0)
            mailbox.wrong++;
        layout_free(letter.layout);
        /* One of its own is changed here, while the others go on. */
        for (size_t key = 0; clone && key < MODEL_KEYS; key += 90) {
            struct layout_put put = {.key = model_keys[key],
                                     .key_bytes = strlen(model_keys[key]),
                                     .slot = LAYOUT_UNBOUND,
                                     .serial = (1ull << 50) + key};
            mailbox.wrong += layout_put_many(clone, &put, 1, false, &culprit) != 0;
            mailbox.wrong += layout_delete(clone, put.key, put.key_bytes) != 0;
        }
        layout_free(clone);
    }
    return NULL;
}

/* A clone, or a holder more: both live on when their owner drops them. */
static void send_letter(struct layout *layout)
{
    struct letter letter = {.layout = layout};

    require(letter.layout && hash_layout(letter.layout, letter.hash));
    pthread_mutex_lock(&mailbox.mutex);
    while (mailbox.count == MAILBOX)
        pthread_cond_wait(&mailbox.changed, &mailbox.mutex);
    mailbox.letters[mailbox.count++] = letter;
    pthread_cond_broadcast(&mailbox.changed);
    pthread_mutex_unlock(&mailbox.mutex);
}

static void change_and_send(int rounds)
{
    static struct deed deed;

    for (int round = 0; round < rounds; round++) {
        struct model *model = pick_model(true);

        if (model && pick(12) == 0) {
            send_letter(layout_clone(model->layout));
        } else if (model && count_live() > 1 && pick(30) == 0) {
            send_letter(layout_ref(model->layout));
            layout_free(model->layout);
            model->layout = NULL;
        }
        if (!deed_choose(&deed))
            continue;
        require(deed_try(&deed) == 0);
        deed_note(&deed);
    }
}

TAP_TEST(clones_are_read_changed_and_freed_by_another_thread_meanwhile)
{
    pthread_t thread;

    models_start(7);
    mailbox.over = false;
    require(pthread_create(&thread, NULL, read_and_free, NULL) == 0);
    change_and_send(4000);
    pthread_mutex_lock(&mailbox.mutex);
    mailbox.over = true;
    pthread_cond_broadcast(&mailbox.changed);
    pthread_mutex_unlock(&mailbox.mutex);
    pthread_join(thread, NULL);
    check_int(mailbox.wrong, 0);
    check(mailbox.read > 100);
    models_end();
}

TAP_TEST(serials_that_do_not_rise_with_the_order_of_puts_are_kept_sorted)
{
    auto_layout *layout = layout_new();
    struct layout_put puts[64];
    char keys[64][4];
    size_t culprit;

    require(layout != NULL);
    for (size_t batch = 0; batch < 4; batch++) {
        for (size_t i = 0; i < 16; i++) {
            size_t number = i * 4 + batch;
            snprintf(keys[number], sizeof keys[number], "%02u", (unsigned)((number * 29) % 64));
            puts[i] = (struct layout_put){.key = keys[number],
                                          .key_bytes = 2,
                                          .slot = LAYOUT_UNBOUND,
                                          .serial = 1000 - number};
        }
        require(layout_put_many(layout, puts, 16, false, &culprit) == 0);
    }
    for (uint64_t number = 0; number < 64; number++) {
        const struct layout_entry *entry = layout_find_entry_serial(layout, 1000 - number);
        require(entry != NULL);
        check_bytes(entry->key, entry->key_bytes, keys[number], 2);
    }
}
