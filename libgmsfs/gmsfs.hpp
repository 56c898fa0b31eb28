// SPDX-License-Identifier: Apache-2.0
//
// gmsfs.hpp - gmsfs.h for C++17: handles that close themselves, results that carry a value
// A thin layer: each function is one call of gmsfs.h, which documents its errors. Nothing throws,
// so it can be used with -fno-exceptions; an error is a negative errno, as in C. Use Store::get()
// for every other call of gmsfs.h; graph pools and regions have headers of their own.
#ifndef GMSFS_HPP
#define GMSFS_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "gmsfs.h"

namespace gmsfs {

inline constexpr std::uint64_t forever = GMSFS_TIMEOUT_FOREVER;

// A value, or a negative errno in its place.
template <typename T> class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}
    static Result failure(int error) { return Result(error, 0); }

    explicit operator bool() const { return error_ == 0; }
    int error() const { return error_; }
    // Only after success.
    T &operator*() { return value_; }
    const T &operator*() const { return value_; }
    T *operator->() { return &value_; }

  private:
    Result(int error, int) : error_(error) {}
    T value_{};
    int error_ = 0;
};

struct Free {
    void operator()(void *block) const { std::free(block); }
};

// A list that the library allocated; freed with its object.
template <typename T> class List {
  public:
    List() = default;
    List(T *items, std::size_t count) : items_(items), count_(count) {}
    const T *begin() const { return items_.get(); }
    const T *end() const { return items_.get() + count_; }
    const T &operator[](std::size_t at) const { return items_.get()[at]; }
    std::size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }

  private:
    std::unique_ptr<T[], Free> items_;
    std::size_t count_ = 0;
};

struct FreeLayout {
    void operator()(gmsfs_layout *layout) const { gmsfs_free_layout(layout); }
};
using Layout = std::unique_ptr<gmsfs_layout, FreeLayout>;

struct Created {
    void *ptr = nullptr;
    std::uint64_t slot = GMSFS_SLOT_NONE;
};

// One store. Its end closes the handle, which releases the lock and unmaps everything.
class Store {
  public:
    Store() = default;
    explicit Store(gmsfs_t *handle) : handle_(handle) {}

    [[nodiscard]] static Result<Store> open(const char *path)
    {
        gmsfs_t *handle = nullptr;
        int error = gmsfs_open(path, &handle);
        return error ? Result<Store>::failure(error) : Result<Store>(Store(handle));
    }

    gmsfs_t *get() const { return handle_.get(); }
    gmsfs_t *release() { return handle_.release(); }
    explicit operator bool() const { return handle_ != nullptr; }

    [[nodiscard]] int connect(gmsfs_mode mode, std::uint64_t timeout_ms = forever,
                              std::uint64_t reserve_bytes = 0)
    {
        return gmsfs_connect_reserve(get(), mode, timeout_ms, reserve_bytes);
    }
    int disconnect() { return gmsfs_disconnect(get()); }
    int cancel() { return gmsfs_cancel(get()); }
    gmsfs_mode granted_lock() const { return gmsfs_granted_lock(get()); }
    [[nodiscard]] int commit(unsigned flags = 0) { return gmsfs_commit(get(), flags, nullptr); }
    [[nodiscard]] int clear() { return gmsfs_clear_all_handles(get()); }

    [[nodiscard]] Result<gmsfs_info> info() const
    {
        gmsfs_info info{};
        int error = gmsfs_get_info(get(), &info);
        return error ? Result<gmsfs_info>::failure(error) : Result<gmsfs_info>(info);
    }

    [[nodiscard]] Result<Layout> read_layout() const
    {
        gmsfs_layout *layout = nullptr;
        int error = gmsfs_read_layout(get(), &layout);
        return error ? Result<Layout>::failure(error) : Result<Layout>(Layout(layout));
    }

    [[nodiscard]] Result<Created> create(std::uint64_t size_bytes, const char *tag = nullptr)
    {
        Created made;
        int error = gmsfs_create_mapping(get(), size_bytes, tag, &made.slot, &made.ptr);
        return error ? Result<Created>::failure(error) : Result<Created>(made);
    }

    [[nodiscard]] Result<List<gmsfs_mapping>> attach_all(gmsfs_access access = GMSFS_ACCESS_READ)
    {
        gmsfs_mapping *items = nullptr;
        std::size_t count = 0;
        int error = gmsfs_attach_all(get(), access, &items, &count);
        using Made = Result<List<gmsfs_mapping>>;
        return error ? Made::failure(error) : Made(List<gmsfs_mapping>(items, count));
    }

    int destroy(void *ptr) { return gmsfs_destroy_mapping(get(), ptr); }
    [[nodiscard]] int sleep(unsigned flags = 0) { return gmsfs_unmap_all_vas(get(), flags); }
    [[nodiscard]] int wake(std::uint64_t timeout_ms = forever, bool strict = false)
    {
        return gmsfs_remap_all_vas(get(), timeout_ms, strict);
    }

  private:
    struct Close {
        void operator()(gmsfs_t *handle) const { gmsfs_close(handle); }
    };
    std::unique_ptr<gmsfs_t, Close> handle_;
};

} // namespace gmsfs

#endif
