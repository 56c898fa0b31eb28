/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises other formats, so that a user learns which format the named file has. */
#include <stdbool.h>
#include <string.h>

#include "safetensors_parts.h"

#define OTHER_FORMAT \
    "; gmsfs loads safetensors and GGUF: fetch the model in one of those, or convert it"
#define TORCH_FORMAT OTHER_FORMAT " (torch.load, then safetensors.torch.save_file)"
#define PICKLE       "is a pickle, as PyTorch wrote .bin, .pt and .pth" TORCH_FORMAT
#define WEB_PAGE     "is a web page; fetch the file again, perhaps after a login"
#define OLD_GGML     "is a model of llama.cpp from before GGUF" OTHER_FORMAT
#define LENGTH_BYTES 8u

/* Offsets in the first member of a ZIP archive. */
#define ZIP_MAGIC     "PK\x03\x04"
#define ZIP_LENGTH_AT 26u
#define ZIP_NAME_AT   30u
#define PICKLE_FIRST  2 /* versions of the format that begin with it */
#define PICKLE_LAST   5
#define ONNX_PRODUCER 0x12 /* the field after the version, a text */
#define ONNX_VERSION  0x08 /* the first field, a number */
#define ONNX_LEAST    3u

static bool name_ends(const char *name, size_t name_bytes, const char *suffix)
{
    size_t end = strlen(suffix);

    return name_bytes >= end && memcmp(name + name_bytes - end, suffix, end) == 0;
}

/* Decides by the name of the first member. */
static const char *other_zip(const char *bytes, size_t size_bytes)
{
    size_t name_bytes = 0;

    if (size_bytes > ZIP_NAME_AT)
        name_bytes = (unsigned char)bytes[ZIP_LENGTH_AT] |
                     (size_t)(unsigned char)bytes[ZIP_LENGTH_AT + 1] << 8;
    if (size_bytes <= ZIP_NAME_AT || name_bytes > size_bytes - ZIP_NAME_AT)
        name_bytes = 0;
    if (name_ends(bytes + ZIP_NAME_AT, name_bytes, ".npy"))
        return "is an archive of NumPy arrays (.npz)" OTHER_FORMAT
               " (numpy.load, then safetensors.numpy.save_file)";
    return "is a ZIP archive, as PyTorch writes .bin, .pt and .pth" TORCH_FORMAT;
}

/* Recognises formats without a magic word. */
static const char *other_shape(const char *bytes, size_t size_bytes)
{
    if (size_bytes > 2 && bytes[0] == '\x80' && bytes[1] >= PICKLE_FIRST && bytes[1] <= PICKLE_LAST)
        return PICKLE;
    if (size_bytes > LENGTH_BYTES && memcmp(bytes + 4, "TFL3", 4) == 0)
        return "is a TensorFlow Lite model" OTHER_FORMAT;
    if (size_bytes > ONNX_LEAST && bytes[0] == ONNX_VERSION && bytes[1] > 0 &&
        bytes[2] == ONNX_PRODUCER)
        return "is an ONNX model" OTHER_FORMAT;
    /* A header is shorter than 2^32 bytes, so a truncated safetensors file has zeros here. */
    if (size_bytes >= LENGTH_BYTES && bytes[0] == '{' && !memchr(bytes, '\0', LENGTH_BYTES))
        return "is JSON and no safetensors file; an index has to be named *.json";
    return NULL;
}

const char *safetensors_other(const char *bytes, size_t size_bytes)
{
#define BEGINS(magic) magic, sizeof(magic) - 1
    static const struct {
        const char *magic;
        size_t magic_bytes;
        const char *text;
    } others[] = {
        {BEGINS("GGUF"), "is a GGUF file, and the others are not; load files of one format"},
        {BEGINS("lmgg"), OLD_GGML},
        {BEGINS("fmgg"), OLD_GGML},
        {BEGINS("tjgg"), OLD_GGML},
        {BEGINS("\x89HDF\r\n"), "is an HDF5 file" OTHER_FORMAT},
        {BEGINS("\x93NUMPY"), "is a NumPy array (.npy)" OTHER_FORMAT},
        {BEGINS("\x1f\x8b"), "is compressed by gzip; unpack it first"},
        {BEGINS("\x28\xb5\x2f\xfd"), "is compressed by zstd; unpack it first"},
        {BEGINS("\xfd"
                "7zXZ"),
         "is compressed by xz; unpack it first"},
        {BEGINS("version https://git-lfs"),
         "is a pointer of Git LFS and not the file itself; 'git lfs pull' fetches that"},
        {BEGINS("<!DOCTYPE"), WEB_PAGE},
        {BEGINS("<!doctype"), WEB_PAGE},
        {BEGINS("<html"), WEB_PAGE},
    };
#undef BEGINS

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (size_bytes >= others[i].magic_bytes &&
            memcmp(bytes, others[i].magic, others[i].magic_bytes) == 0)
            return others[i].text;
    if (size_bytes >= strlen(ZIP_MAGIC) && memcmp(bytes, ZIP_MAGIC, strlen(ZIP_MAGIC)) == 0)
        return other_zip(bytes, size_bytes);
    return other_shape(bytes, size_bytes);
}
