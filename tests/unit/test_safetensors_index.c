/* SPDX-License-Identifier: Apache-2.0 */
/* Tests models of several safetensors files, and the index that names them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "safetensors_fixture.h"
#include "tap.h"

/* A scratch directory with the files that a test names; all are removed with it. */
static char directory[64];

static void directory_open(void)
{
    strcpy(directory, "/tmp/test_safetensors.XXXXXX");
    require(mkdtemp(directory) != NULL);
}

static const char *in_directory(const char *name)
{
    static char full[2][256];
    static unsigned int turn;

    turn = !turn;
    snprintf(full[turn], sizeof(full[turn]), "%s/%s", directory, name);
    return full[turn];
}

static void directory_close(const char *const *names)
{
    for (; *names != NULL; names++)
        unlink(in_directory(*names));
    rmdir(directory);
}

static void write_tensor_file(const char *name, const char *header, size_t data_bytes)
{
    int fd = open(in_directory(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    require(fd >= 0);
    fill(fd, header, data_bytes);
    close(fd);
}

static void write_text_file(const char *name, const char *text)
{
    int fd = open(in_directory(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    require(fd >= 0);
    put(fd, text, strlen(text), 0);
    close(fd);
}

static const char *const model_names[] = {"1.safetensors", "2.safetensors", "index.json", NULL};

static void write_shards(void)
{
    directory_open();
    write_tensor_file(
        "1.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\",\"n\":\"1\"}," TENSOR("b", "U8", "[2]", "[0,2]") "}",
        2);
    write_tensor_file(
        "2.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\",\"n\":\"2\"}," TENSOR("a", "U8", "[3]", "[0,3]") "}",
        3);
}

/* Checks that the index of that text over two good shards is refused, in words that hold
 * `cause`. */
static void check_index_refused(const char *text, int err, const char *cause)
{
    struct model *model = NULL;

    write_shards();
    write_text_file("index.json", text);
    check_int(open_path(in_directory("index.json"), &model), err);
    if (!check(strstr(error.text, cause) != NULL))
        fprintf(stderr, "#   it said: %s\n", error.text);
    safetensors_close(model);
    directory_close(model_names);
}

TAP_TEST(an_index_opens_its_shards_beside_it)
{
    struct model *model = NULL;

    write_shards();
    write_text_file("index.json", "{\"metadata\":{\"total_size\":5},\"weight_map\":{"
                                  "\"b\":\"1.safetensors\",\"a\":\"2.safetensors\"}}\n");
    require(open_path(in_directory("index.json"), &model) == 0);
    check_int(model->file_count, 2);
    check_int(model->tensor_count, 2);
    check_str(model->tensors[0].name, "a");
    check_str(model->files[model->tensors[0].file].path, in_directory("2.safetensors"));
    safetensors_close(model);
    directory_close(model_names);
}

TAP_TEST(an_index_in_the_working_directory_needs_no_slash)
{
    struct model *model = NULL;
    char *before = getcwd(NULL, 0);

    write_shards();
    write_text_file("index.json",
                    "{\"weight_map\":{\"b\":\"1.safetensors\",\"a\":\"2.safetensors\"}}");
    require(before != NULL && chdir(directory) == 0);
    check_int(open_path("index.json", &model), 0);
    safetensors_close(model);
    require(chdir(before) == 0);
    free(before);
    directory_close(model_names);
}

TAP_TEST(an_index_that_leaves_its_directory_is_refused)
{
    check_index_refused("{\"weight_map\":{\"a\":\"../2.safetensors\"}}", -EINVAL, "plain file");
    check_index_refused("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", -EINVAL, "plain file");
    check_index_refused("{\"weight_map\":{\"a\":\"sub/2.safetensors\"}}", -EINVAL, "plain file");
    check_index_refused("{\"weight_map\":{\"a\":\"..\"}}", -EINVAL, "plain file");
    check_index_refused("{\"weight_map\":{\"a\":\".\"}}", -EINVAL, "plain file");
    check_index_refused("{\"weight_map\":{\"a\":\"\"}}", -EINVAL, "plain file");
}

TAP_TEST(an_index_of_the_wrong_form_is_refused)
{
    check_index_refused("", -EINVAL, "JSON");
    check_index_refused("[]", -EINVAL, "not a JSON object");
    check_index_refused("{}", -EINVAL, "weight_map");
    check_index_refused("{\"weight_map\":[]}", -EINVAL, "weight_map");
    check_index_refused("{\"weight_map\":{}}", -EINVAL, "empty");
    check_index_refused("{\"weight_map\":{\"a\":1}}", -EINVAL, "tensor 'a'");
    check_index_refused("{\"metadata\":1,\"weight_map\":{\"a\":\"2.safetensors\"}}", -EINVAL,
                        "metadata");
    check_index_refused("{\"weight_map\":{\"a\":\"2.safetensors\",\"a\":\"1.safetensors\"}}",
                        -EINVAL, "occurs twice");
}

TAP_TEST(an_index_that_names_a_missing_shard_is_enoent)
{
    check_index_refused("{\"weight_map\":{\"a\":\"3.safetensors\"}}", -ENOENT, "3.safetensors");
}

TAP_TEST(a_tensor_of_the_index_that_no_shard_holds_is_refused)
{
    check_index_refused("{\"weight_map\":{\"b\":\"1.safetensors\",\"a\":\"2.safetensors\","
                        "\"c\":\"2.safetensors\"}}",
                        -EINVAL, "tensor 'c'");
}

TAP_TEST(a_tensor_of_the_index_in_another_shard_is_refused)
{
    check_index_refused("{\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}}",
                        -EINVAL, "but it is in");
}

TAP_TEST(a_tensor_of_a_shard_that_the_index_does_not_name_is_refused)
{
    write_shards();
    write_tensor_file(
        "2.safetensors",
        "{" TENSOR("a", "U8", "[3]", "[0,3]") "," TENSOR("extra", "U8", "[1]", "[3,4]") "}", 4);
    write_text_file("index.json",
                    "{\"weight_map\":{\"b\":\"1.safetensors\",\"a\":\"2.safetensors\"}}");
    struct model *model = NULL;
    check_int(open_path(in_directory("index.json"), &model), -EINVAL);
    check(strstr(error.text, "tensor 'extra'") != NULL);
    directory_close(model_names);
}

TAP_TEST(several_files_make_one_model)
{
    struct model *model = NULL;
    char *json = NULL;

    write_shards();
    const char *paths[] = {in_directory("2.safetensors"), in_directory("1.safetensors")};
    require(open_places(paths, 2, &model) == 0);
    check_int(model->tensor_count, 2);
    check_int(model->tensors[0].file, 0);
    check_int(safetensors_metadata_json(model, &json), 0);
    check_str(json, "{\"format\":\"pt\",\"n\":\"2\",\"n@2\":\"1\"}");
    free(json);
    safetensors_close(model);
    directory_close(model_names);
}

TAP_TEST(a_key_that_looks_numbered_loses_nothing)
{
    struct model *model = NULL;
    char *json = NULL;

    write_shards();
    write_tensor_file(
        "1.safetensors",
        "{\"__metadata__\":{\"n\":\"1\",\"n@2\":\"mine\"}," TENSOR("b", "U8", "[1]", "[0,1]") "}",
        1);
    write_tensor_file("2.safetensors",
                      "{\"__metadata__\":{\"n\":\"2\"}," TENSOR("a", "U8", "[1]", "[0,1]") "}", 1);
    const char *paths[] = {in_directory("1.safetensors"), in_directory("2.safetensors")};
    require(open_places(paths, 2, &model) == 0);
    check_int(safetensors_metadata_json(model, &json), 0);
    check_str(json, "{\"n\":\"1\",\"n@2\":\"mine\",\"n@2@2\":\"2\"}");
    free(json);
    safetensors_close(model);
    directory_close(model_names);
}

TAP_TEST(a_name_in_two_files_is_refused_and_both_are_named)
{
    struct model *model = NULL;

    write_shards();
    write_tensor_file("2.safetensors", "{" TENSOR("b", "U8", "[1]", "[0,1]") "}", 1);
    const char *paths[] = {in_directory("1.safetensors"), in_directory("2.safetensors")};
    check_int(open_places(paths, 2, &model), -EINVAL);
    check(strstr(error.text, "tensor 'b'") != NULL);
    check(strstr(error.text, "1.safetensors") != NULL);
    check(strstr(error.text, "2.safetensors") != NULL);
    directory_close(model_names);
}

TAP_TEST(an_index_beside_other_files_is_refused)
{
    struct model *model = NULL;
    const char *paths[] = {"1.safetensors", "index.json"};

    check_int(open_places(paths, 2, &model), -EINVAL);
    check(strstr(error.text, "name it alone") != NULL);
}
