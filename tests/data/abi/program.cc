// SPDX-License-Identifier: Apache-2.0
// Publishes a store and reads it, by gmsfs.hpp. Exits with the number of the step that failed.
#include <cerrno>
#include <cstring>

#include <gmsfs.hpp>

static int publish(const char *path)
{
    auto store = gmsfs::Store::open(path);
    if (!store)
        return 1;
    if (store->connect(GMSFS_MODE_RW, 5000) || store->clear())
        return 2;
    auto made = store->create(4096, "w");
    if (!made)
        return 3;
    std::memset(made->ptr, 7, 4096);
    return store->commit() ? 4 : 0;
}

static int read(const char *path)
{
    auto store = gmsfs::Store::open(path);
    if (!store || store->connect(GMSFS_MODE_RO, 5000))
        return 5;
    auto mappings = store->attach_all();
    if (!mappings || mappings->size() != 1)
        return 6;
    for (const auto &mapping : *mappings)
        if (static_cast<const unsigned char *>(mapping.ptr)[4095] != 7)
            return 7;
    auto layout = store->read_layout();
    if (!layout || (*layout)->allocation_count != 1)
        return 8;
    if (store->sleep() || store->wake(5000))
        return 9;
    return store->info()->readers == 1 ? 0 : 10;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 11;
    if (gmsfs::Store::open("/nowhere").error() != -ENOENT)
        return 12;
    int failed = publish(argv[1]);
    return failed ? failed : read(argv[1]);
}
