#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# libgmsfs as programs are built with it: its exports, its structs, its version, C++.
#
# tests/data/abi has the record: a difference is a new interface. Changes only add to a released interface;
# then `O=build tests/data/abi/record` writes the record anew.
#
# bats file_tags=slow

load helpers

HEADERS=("$ROOT"/libgmsfs/gmsfs{,_memory,_graph,_region}.h)

# A line for each, as nm has them: "gmsfs_open@@GMSFS_0.1".
exported_symbols() {
    nm -D --defined-only "$BUILD/libgmsfs.so.0" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort
}

@test "the shared library exports the recorded symbols, with versions" {
    diff "$ROOT/tests/data/abi/symbols" <(exported_symbols)
}

@test "structs and constants of the headers are the recorded ones" {
    diff "$ROOT/tests/data/abi/structs" <("$BUILD/tests/tools/abi_structs")
}

# Sanitizers and other machines change the types, so these differ from the record.
requires_abidiff() {
    requires abidiff no-sanitizer
    requires x86_64 # which the interface was recorded on
}

@test "types of all functions and structs are the recorded ones" {
    requires_abidiff
    "$ROOT/tests/data/abi/dump" "$BUILD/libgmsfs.so.0" >"$T/types.abi"
    run_logged -0 abidiff "$ROOT/tests/data/abi/types.abi" "$T/types.abi"
}

@test "a parameter of another type is seen" {
    requires_abidiff
    awk '/<function-decl/ { at = /gmsfs_destroy_mapping/ }
        at && /name=.handle./ { split($0, part, "\047"); handle = part[2] }
        at && /name=.ptr./ { sub(/type-id=.[0-9a-f]+./, "type-id=\047" handle "\047") } { print }' \
        "$ROOT/tests/data/abi/types.abi" >"$T/other.abi"
    run abidiff "$ROOT/tests/data/abi/types.abi" "$T/other.abi"
    [[ $status -ne 0 && $output == *'gmsfs_destroy_mapping'*'parameter 2'* ]]
}

@test "the static library has the same names and no others" {
    local names
    names=$(nm --defined-only -g "$BUILD/libgmsfs.a" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort)
    diff <(exported_symbols | sed 's/@.*//') <(echo "$names")
}

@test "a program links with the static library alone" {
    printf '#include <gmsfs.h>\nint main(void) { return gmsfs_version_number() != GMSFS_VERSION_NUMBER; }\n' \
        >"$T/a.c"
    cc -I"$ROOT/libgmsfs" -o "$T/a" "$T/a.c" "$BUILD/libgmsfs.a" -pthread ${SANITIZE:+"-fsanitize=$SANITIZE"}
    "$T/a"
}

@test "the library's version is the command's" {
    printf '#include <gmsfs.h>\n#include <stdio.h>\nint main(void) { puts(gmsfs_version()); }\n' >"$T/v.c"
    cc -I"$ROOT/libgmsfs" -o "$T/v" "$T/v.c" "$BUILD/libgmsfs.a" -pthread ${SANITIZE:+"-fsanitize=$SANITIZE"}
    [[ $("$GMSFS" --version) == *"$("$T/v")"* ]]
}

@test "the C++ header compiles alone, without exceptions" {
    local compiler
    echo '#include <gmsfs.hpp>' >"$T/h.cc"
    echo '#include <gmsfs.hpp>' >>"$T/h.cc"
    for compiler in g++ clang++; do
        command -v "$compiler" >/dev/null || continue
        "$compiler" -std=c++17 -fno-exceptions -fno-rtti -Wall -Wextra -pedantic -Werror \
            -I"$ROOT/libgmsfs" -fsyntax-only "$T/h.cc"
    done
}

@test "a C++ program publishes and reads by the header" {
    command -v g++ >/dev/null || requires g++
    start_mount
    g++ -std=c++17 -fno-exceptions -Wall -Wextra -Werror -I"$ROOT/libgmsfs" -o "$T/p" \
        "$ROOT/tests/data/abi/program.cc" "$BUILD/libgmsfs.a" -pthread ${SANITIZE:+"-fsanitize=$SANITIZE"}
    "$T/p" "$M/weights"
    [[ $(<"$M/weights/state") == COMMITTED ]] # it has closed its files
}

# ---- the manual --------------------------------------------------------------------------------

functions() { # of the headers
    grep -ohE '^GMSFS_API .*' "${HEADERS[@]}" | grep -oE 'gmsfs_[a-z_]+\(' | tr -d '(' | sort
}

# documented SECTION MACRO: the functions that lines of this macro name there, on all pages.
documented() {
    awk -v section="$1" -v macro="$2" '$1 == ".Sh" { on = $2 == section }
        on && $1 == macro { for (i = 1; i < NF; i++) if ($i ~ /^\.?Fn$/) print $(i + 1) }' \
        "$ROOT"/man/*.3 | sort
}

@test "the manual has a prototype and a list of errors for every function of the headers" {
    assert_eq "$(functions)" "$(exported_symbols | sed 's/@.*//' | sort)" 'the functions of the headers'
    diff <(functions) <(documented SYNOPSIS .Fn)
    diff <(functions) <(documented ERRORS .It)
}

@test "the manual has every ioctl of the header" {
    diff <(grep -oE '^#define GMSFS_IOC_[A-Z_]+' "$ROOT/libgmsfs/gmsfs_abi.h" | sed 's/.*_IOC_//' | sort) \
        <(awk '/^\.Sh/ { on = $2 == "IOCTLS" } on && $1 == ".It" { print $2 }' "$ROOT/man/gmsfs.5" | sort)
}

# structs FILE...: without comments.
structs() {
    cat "$@" | sed ':a; N; $!ba; s:/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/::g' |
        awk '/^struct gmsfs_[a-z_]+ \{/ { on = 1 } on { sub(/ +$/, "") } on && $0 { print } /^};/ { on = 0 }'
}

@test "structs in the manual are those of the headers" {
    local page name found=0
    structs "${HEADERS[@]}" >"$T/header"
    for page in "$ROOT"/man/*.3; do
        structs "$page" >"$T/page"
        while read -r name; do
            diff <(sed -n "/^struct $name {/,/^};/p" "$T/header") <(sed -n "/^struct $name {/,/^};/p" "$T/page")
            found=$((found + 1))
        done < <(awk '/^struct/ { print $2 }' "$T/page")
    done
    [[ $found -ge 8 ]] || fail "only $found structs were found"
}

# The body of a function each; \e is a backslash to mdoc, and \& nothing.
@test "the examples in the manual's pages of the library compile" {
    local page count=0
    for page in "$ROOT"/man/*.3; do
        grep -q '^\.Sh EXAMPLES' "$page" || continue
        {
            printf '#include <gmsfs_graph.h>\n#include <gmsfs_region.h>\n#include <stdio.h>\n#include <string.h>\nint main(void)\n{\n'
            awk '/^\.Sh/ { on = $2 == "EXAMPLES" } on && /^\.Ed/ { in_code = 0; print "}" }
                in_code { print } on && /^\.Bd/ { in_code = 1; print "{" }' "$page" |
                sed 's/\\e/\\/g; s/^\\&\.\.\.//'
            echo '}'
        } >"$T/example.c"
        cc -I"$ROOT/libgmsfs" -Wall -Werror -Wno-unused -fsyntax-only "$T/example.c"
        count=$((count + 1))
    done
    [[ $count -ge 3 ]] || fail "only $count pages have examples"
}
