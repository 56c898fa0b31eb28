/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is that is no safetensors file: so that whoever named it learns more than that. */
#include <string.h>

#include "safetensors_parts.h"

#define OTHER_FORMAT "; gmsfs loads safetensors: fetch the model in that format, or convert it"
#define TORCH_FORMAT OTHER_FORMAT " (torch.load, then safetensors.torch.save_file)"
#define LENGTH_BYTES 8u

const char *safetensors_other(const char *bytes, size_t size_bytes)
{
#define BEGINS(magic) magic, sizeof(magic) - 1
    static const struct {
        const char *magic;
        size_t magic_bytes;
        const char *text;
    } others[] = {
        {BEGINS("GGUF"), "is a GGUF file, of llama.cpp" OTHER_FORMAT},
        {BEGINS("PK\x03\x04"),
         "is a ZIP archive, as PyTorch writes .bin, .pt and .pth" TORCH_FORMAT},
        {BEGINS("\x80\x02\x8a\nl\xfc\x9c\x46\xf9"),
         "is a pickle, as PyTorch wrote .bin, .pt and .pth" TORCH_FORMAT},
        {BEGINS("\x89HDF\r\n"), "is an HDF5 file" OTHER_FORMAT},
        {BEGINS("\x93NUMPY"), "is a NumPy array" OTHER_FORMAT},
        {BEGINS("version https://git-lfs"),
         "is a pointer of Git LFS and not the file itself; 'git lfs pull' fetches that"},
        {BEGINS("<!DOCTYPE"), "is a web page; fetch the file again, perhaps after a login"},
        {BEGINS("<!doctype"), "is a web page; fetch the file again, perhaps after a login"},
        {BEGINS("<html"), "is a web page; fetch the file again, perhaps after a login"},
    };
#undef BEGINS

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (size_bytes >= others[i].magic_bytes &&
            memcmp(bytes, others[i].magic, others[i].magic_bytes) == 0)
            return others[i].text;
    /* The length of a header is less than 2^32, so a file that is cut off has zeros here. */
    if (size_bytes >= LENGTH_BYTES && bytes[0] == '{' && !memchr(bytes, '\0', LENGTH_BYTES))
        return "is JSON and no safetensors file; an index has to be named *.json";
    return NULL;
}
