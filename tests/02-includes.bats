#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# scripts/check-includes, check-circles and the checks in scripts/lint itself find the violations that they
# are there to find.
#
# bats file_tags=slow

load helpers

tree() {
    mkdir -p "$T"/src/{base,fsm,meta,core,service,vmm,copier,rpc,fs,daemon,source,mover,model,image,triton,cli} "$T"/{libgmsfs,examples}
    local header
    for header in src/base/{array,text,log,thread,near}.h src/source/{source,source_backend}.h src/mover/{work,sink}.h src/model/pack.h src/image/image.h src/cli/cli.h src/fsm/lock.h src/meta/layout.h src/core/core.h src/service/service.h src/rpc/{message,session}.h \
        src/vmm/{vmm,backends}.h src/fs/fs.h src/daemon/{daemon,loop}.h src/triton/{triton,wire_text,server}.h libgmsfs/{gmsfs,gmsfs_abi}.h; do
        : >"$T/$header"
    done
    echo '#include "mover/work.h"' >"$T/src/mover/mover.h"
    echo '#include "pack.h"' >"$T/src/model/model.h"
}

source_file() { # PATH INCLUDE...
    local path=$1 name
    shift
    for name in "$@"; do echo "#include $name"; done >"$T/$path"
}

allowed() {
    tree
    source_file "$@"
    run_logged -0 "$ROOT/scripts/check-includes" "$T"
    rm "$T/$1"
}

refused() { # REASON PATH INCLUDE...
    local reason=$1
    shift
    tree
    source_file "$@"
    run_logged -1 "$ROOT/scripts/check-includes" "$T"
    assert_match "$output" "^$1:[0-9]+: .*$reason"
    rm "$T/$1"
}

@test "this tree is in order" {
    run_logged -0 "$ROOT/scripts/check-includes"
}

@test "calls downwards are allowed" {
    allowed src/base/text.c '"base/text.h"' '"text.h"' '<string.h>' '<stdio.h>'
    allowed src/base/array.h '<stdlib.h>'
    allowed src/base/log.c '"base/log.h"' '<time.h>' '<unistd.h>'
    allowed src/fsm/lock.c '"fsm/lock.h"' '"gmsfs_abi.h"' '"base/text.h"' '"base/log.h"'
    allowed src/base/xxh3.h '<xxhash.h>' '<xxh_x86dispatch.h>'
    allowed src/meta/layout.c '"base/text.h"' '<msgpack.h>'
    allowed src/core/core.c '"fsm/lock.h"' '"meta/layout.h"' '<errno.h>'
    allowed src/service/service.c '"core/core.h"' '"vmm/vmm.h"' '<time.h>'
    allowed src/rpc/message_encode.c '"rpc/message.h"' '"meta/layout.h"' '<msgpack.h>' '<string.h>'
    allowed src/rpc/session.c '"rpc/message.h"' '"service/service.h"' '"core/core.h"' '<sys/socket.h>'
    allowed src/fs/nodes.c '"service/service.h"' '"gmsfs_abi.h"' '<fuse_lowlevel.h>' '<jansson.h>'
    allowed src/daemon/worker.c '"daemon/loop.h"' '"fs/fs.h"' '"rpc/session.h"' '"vmm/vmm.h"' '<fuse_lowlevel.h>'
    allowed src/daemon/loop.c '"daemon/loop.h"' '"base/text.h"' '<sys/epoll.h>'
    allowed src/triton/wire_text.c '"triton/wire_text.h"' '"base/text.h"' '"gmsfs_abi.h"' '<string.h>'
    allowed src/triton/server.c '"triton/server.h"' '"triton/wire_text.h"' '"daemon/loop.h"' '"gmsfs.h"' '<nghttp2/nghttp2.h>' '<unistd.h>'
    allowed src/cli/cmd_triton.c '"triton/triton.h"'
    allowed src/copier/cuda.c '"base/near.h"' '<sched.h>'
    allowed src/mover/work.c '"mover/sink.h"' '"work.h"' '"base/thread.h"' '"gmsfs.h"'
    allowed src/mover/work.c '"source/source.h"'
    allowed src/source/source.c '"source/source_backend.h"' '"gmsfs_abi.h"' '<sys/stat.h>'
    allowed src/source/source.c '<curl/curl.h>' '<expat.h>' '<nettle/sha2.h>' '<jansson.h>'
    allowed src/model/pack.c '"model/pack.h"' '"source/source.h"' '<jansson.h>'
    allowed src/image/image.c '"mover/mover.h"' '"mover/work.h"' '"meta/layout.h"' '"gmsfs.h"'
    allowed src/cli/main.c '"mover/work.h"' '"model/model.h"' '"model/pack.h"' '"image/image.h"' '"daemon/daemon.h"' '"vmm/backends.h"' '"gmsfs.h"' '<gmsfs.h>' '<jansson.h>'
    allowed libgmsfs/map.c '"gmsfs.h"' '"gmsfs_abi.h"' '<pthread.h>' '"base/array.h"'
    allowed examples/reader.c '<gmsfs.h>' '<stdio.h>'
}

@test "calls upwards and sideways are found" {
    refused 'base must not include fsm' src/base/text.c '"fsm/lock.h"'
    refused 'fsm must not include meta' src/fsm/lock.c '"meta/layout.h"'
    refused 'meta must not include fsm' src/meta/layout.c '"fsm/lock.h"'
    refused 'core must not include vmm' src/core/core.c '"vmm/vmm.h"'
    refused 'core must not include service' src/core/apply_x.c '"service/service.h"'
    refused 'cli must not include service' src/cli/main.c '"service/service.h"'
    refused 'mover must not include cli' src/mover/work.c '"cli/cli.h"'
    refused 'mover must not include model' src/mover/work.c '"model/pack.h"'
    refused 'source must not include mover' src/source/source.c '"mover/work.h"'
    refused 'model must not include mover' src/model/pack.c '"mover/work.h"'
    refused 'model must not include image' src/model/pack.c '"image/image.h"'
    refused 'image must not include cli' src/image/image.c '"cli/cli.h"'
    refused 'cli must not include vmm' src/cli/main.c '"vmm/vmm.h"'
    refused 'cli must not include meta' src/cli/main.c '"meta/layout.h"'
    refused 'meta must not include system' src/meta/layout.c '"base/thread.h"'
    refused 'vmm must not include service' src/vmm/host.c '"service/service.h"'
    refused 'vmm must not include core' src/vmm/host.c '"core/core.h"'
    refused 'service must not include fs' src/service/service.c '"fs/fs.h"'
    refused 'message must not include service' src/rpc/message_decode.c '"service/service.h"'
    refused 'rpc must not include fs' src/rpc/session.c '"fs/fs.h"'
    refused 'rpc must not include loop' src/rpc/session.c '"daemon/loop.h"'
    refused 'daemon must not include message' src/daemon/worker.c '"rpc/message.h"'
    refused 'fs must not include rpc' src/fs/nodes.c '"rpc/session.h"'
    refused 'fs must not include daemon' src/fs/nodes.c '"daemon/daemon.h"'
    refused 'fs must not include fsm' src/fs/nodes.c '"fsm/lock.h"'
    refused 'cli must not include loop' src/cli/main.c '"daemon/loop.h"'
    refused 'loop must not include daemon' src/daemon/loop.c '"daemon/daemon.h"'
    refused 'triton must not include daemon' src/triton/server.c '"daemon/daemon.h"'
    refused 'not among the headers' src/triton/wire_text.c '"triton/server.h"'
    refused 'cli must not include core' src/cli/main.c '"core/core.h"'
    refused 'header must not include base' src/base/array.h '"base/text.h"'
    refused 'lib must not include base' libgmsfs/map.c '"base/text.h"'
    refused 'examples must not include abi' examples/reader.c '<gmsfs_abi.h>'
}

@test "a folder's private header is found where others include it" {
    refused 'not among the headers that src/mover/mover.h shows' src/cli/main.c '"mover/sink.h"'
    refused 'not among the headers that src/source/source.h shows' src/mover/work.c '"source/source_backend.h"'
    refused 'not among the headers that src/mover/mover.h shows' src/image/image.c '"mover/sink.h"'
    refused 'not among the headers that src/triton/triton.h shows' src/cli/main.c '"triton/server.h"'
    : >"$T/src/model/model.h"
    echo '#include "model/pack.h"' >"$T/src/cli/main.c"
    run_logged -1 "$ROOT/scripts/check-includes" "$T"
    assert_match "$output" 'not among the headers that src/model/model.h shows'
}

@test "the pure parts see no I/O, no clock, no threads" {
    local header
    for header in unistd.h fcntl.h time.h pthread.h sys/stat.h sys/mman.h poll.h; do
        refused 'is pure' src/fsm/lock.c "<$header>"
        refused 'is pure' src/meta/layout.c "<$header>"
        refused 'is pure' src/core/record_x.c "<$header>"
        refused 'is pure' src/rpc/message_x.c "<$header>"
        refused 'is pure' src/triton/wire_x.c "<$header>"
        refused 'is pure' src/base/text.h "<$header>"
    done
    refused 'is pure' src/base/log.h '<time.h>'
    printf '# include <time.h>\n' >"$T/src/fsm/lock.c"
    run_logged -1 "$ROOT/scripts/check-includes" "$T"
}

@test "libraries, the loop and odd includes stay where they belong" {
    refused 'must not know fuse' src/service/service.c '<fuse_lowlevel.h>'
    refused 'must not know fuse' src/vmm/host.c '<fuse3/fuse.h>'
    refused 'must not know msgpack' src/fsm/lock.c '<msgpack.h>'
    refused 'must not know msgpack' src/rpc/session.c '<msgpack.h>'
    refused 'must not know jansson' libgmsfs/map.c '<jansson.h>'
    refused 'must not know curl' src/mover/work.c '<curl/curl.h>'
    refused 'must not know nghttp2' src/triton/wire_text.c '<nghttp2/nghttp2.h>'
    refused 'only the daemon' src/fs/nodes.c '<sys/epoll.h>'
    refused 'climbs out' src/fsm/lock.c '"../meta/layout.h"'
    refused 'is not found' src/fsm/lock.c '"fsm/gone.h"'
    refused 'not a plain name' src/fsm/lock.c 'HEADER'
}

defining() { # PATH NAME CALLED...: a function that calls the others
    local path=$T/$1 name=$2 called
    shift 2
    mkdir -p "${path%/*}"
    {
        for called in "$@"; do echo "void $called(void);"; done
        echo "void $name(void); void $name(void) {"
        for called in "$@"; do echo "    $called();"; done
        echo '}'
    } >"$path"
}

check_circles() { # STATUS
    local file
    local -a cc
    read -ra cc <<<"${CC:-cc}" # it may have words: ccache gcc
    cd "$T" || return
    for file in src/*/*.c; do
        mkdir -p "obj/${file%/*}"
        "${cc[@]}" -c -o "obj/${file%.c}.o" "$file"
    done
    run_logged "-$1" "$ROOT/scripts/check-circles" obj .
}

@test "the files of this tree call each other in no circle" {
    run_logged -0 "$ROOT/scripts/check-circles" "$BUILD/obj"
}

@test "a circle of files that call each other is found, however long, and one through a hub is none" {
    defining src/fs/low.c low
    defining src/fs/middle.c middle low
    defining src/core/high.c high middle low
    check_circles 0
    defining src/fs/low.c low high
    check_circles 1
    assert_match "$output" '^a circle of files'
    assert_match "$output" ' src/core/high'
    assert_match "$output" ' src/fs/middle|src/fs/low'
    defining src/fs/low.c low
    defining src/core/apply_lock.c grant high
    defining src/fs/middle.c middle grant
    check_circles 0
}

@test "a file that does not belong at the top of the tree is found" {
    mkdir -p "$T"/tree/{scripts,src,libgmsfs,examples,bench,tests,packaging,python,.ci}
    cp "$ROOT/scripts/lint" "$T/tree/scripts/"
    : >"$T/tree/README.md"
    run_logged -0 "$T/tree/scripts/lint" top-level
    : >"$T/tree/stray file"
    run_logged -1 "$T/tree/scripts/lint" top-level
    assert_match "$output" 'stray file: does not belong at the top'
}
