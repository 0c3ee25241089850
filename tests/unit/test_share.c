/* Files that ranks of a host send each other for their device memory; the store's small words. */
#include "group/share.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void nap(int milliseconds)
{
    struct timespec time = {0, milliseconds * 1000000L};
    nanosleep(&time, NULL);
}

static void no_files(int file[GROUP_RANKS])
{
    for (int r = 0; r < GROUP_RANKS; r++)
        file[r] = -1;
}

START_TEST(a_file_comes_with_its_rank)
{
    Post here, there;
    int ends[2], file[GROUP_RANKS];
    bool wanted[GROUP_RANKS] = {[3] = true, [5] = true};
    char text[4] = "";
    no_files(file);
    ck_assert(post_open(&here) && post_open(&there) && pipe(ends) == 0);
    ck_assert(strcmp(here.name, there.name));
    ck_assert(post_send(&there, here.name, 5, ends[0]) && post_send(&there, here.name, 3, ends[1]));
    post_receive(&here, wanted, clock_seconds() + 10, file);
    ck_assert_int_ge(file[3], 0);
    ck_assert_int_ge(file[5], 0);
    ck_assert_int_eq(write(file[3], "iso", 3), 3);
    ck_assert_int_eq(read(file[5], text, 3), 3);
    ck_assert_str_eq(text, "iso");
    close(file[3]);
    close(file[5]);
    close(ends[0]);
    close(ends[1]);
    post_close(&here);
    post_close(&there);
}
END_TEST

START_TEST(nobody_and_silence_are_told)
{
    Post here;
    int file[GROUP_RANKS];
    bool wanted[GROUP_RANKS] = {[1] = true};
    no_files(file);
    ck_assert(post_open(&here));
    ck_assert(!post_send(&here, "iso-share-nobody", 1, 0));
    double start = clock_seconds();
    post_receive(&here, wanted, start + 0.1, file);
    ck_assert_int_eq(file[1], -1);
    ck_assert(clock_seconds() - start < 5);
    post_close(&here);
}
END_TEST

/* A rank out of range, and a second file of one rank: neither is kept open. */
START_TEST(a_stranger_changes_nothing)
{
    Post here, there;
    int ends[2], more[2], file[GROUP_RANKS];
    bool wanted[GROUP_RANKS] = {[1] = true, [2] = true};
    struct stat first, kept;
    no_files(file);
    ck_assert(post_open(&here) && post_open(&there) && pipe(ends) == 0 && pipe(more) == 0);
    ck_assert(post_send(&there, here.name, 1, ends[0]));
    ck_assert(post_send(&there, here.name, GROUP_RANKS, ends[0]));
    ck_assert(post_send(&there, here.name, -1, ends[0]));
    ck_assert(post_send(&there, here.name, 1, more[0]));
    ck_assert(post_send(&there, here.name, 2, more[0]));
    post_receive(&here, wanted, clock_seconds() + 10, file);
    ck_assert(fstat(ends[0], &first) == 0 && fstat(file[1], &kept) == 0);
    ck_assert(first.st_ino == kept.st_ino);
    close(file[1]);
    close(file[2]);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(more[i]);
    }
    post_close(&here);
    post_close(&there);
}
END_TEST

/* ---- a store of two threads ---- */

typedef struct Client {
    StoreConfig config;
    Store *store;
} Client;

static void *join_store(void *user)
{
    Client *client = user;
    ck_assert_int_eq(store_open(&client->store, &client->config), ISO_OK);
    return NULL;
}

START_TEST(a_rank_says_where_it_waits_and_that_it_left)
{
    char folder[] = "/tmp/iso-share-XXXXXX", where[64];
    pthread_t thread;
    volatile uint32_t word[GROUP_RANKS + 1] = {0};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(where, sizeof where, "file:%s", folder);
    Client a = {.config = {.rank = 0, .ranks = 2, .where = where, .timeout = 20}}, b = a;
    b.config.rank = 1;
    ck_assert_int_eq(pthread_create(&thread, NULL, join_store, &b), 0);
    join_store(&a);
    pthread_join(thread, NULL);
    store_mirror(a.store, word);
    store_tell(b.store, 7);
    for (int i = 0; i < 1000 && store_told(a.store, 1) != 7; i++)
        nap(5);
    ck_assert_uint_eq(store_told(a.store, 1), 7);
    ck_assert_uint_eq(store_told(a.store, 0), 0);
    ck_assert_uint_eq(word[GROUP_RANKS], 0);
    store_close(b.store);
    for (int i = 0; i < 1000 && !word[GROUP_RANKS]; i++)
        nap(5);
    ck_assert_uint_eq(word[GROUP_RANKS], 2);
    ck_assert_uint_eq(word[1], RANK_LEFT);
    store_close(a.store);
    rmdir(folder);
}
END_TEST

Suite *share_suite(void);
Suite *share_suite(void)
{
    Suite *suite = suite_create("share");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_file_comes_with_its_rank);
    tcase_add_test(all, nobody_and_silence_are_told);
    tcase_add_test(all, a_stranger_changes_nothing);
    tcase_add_test(all, a_rank_says_where_it_waits_and_that_it_left);
    suite_add_tcase(suite, all);
    return suite;
}
