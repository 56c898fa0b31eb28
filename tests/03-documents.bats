#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The documents and the manual name only files, links, commits, commands and targets that there are.

load helpers

documents() {
    printf '%s\n' *.md doc/*.md packaging/*.md packaging/*/README.md python/README.md
}

# Prints the words between backticks in DOCUMENT that are a path of the tree.
named_paths() { # DOCUMENT
    # shellcheck disable=SC2016 # backticks, literally
    grep -oE '`[^` ]+`' "$1" | tr -d '`' | grep -v … | grep -E '^[A-Za-z0-9_.*-]+\.(c|h|py|bats|bash|md)$|^(\.ci|bench|doc|examples|libgmsfs|man|packaging|python|scripts|src|tests|web)/' |
        sort -u
}

# A path from the top, or the end of one: a folder stands beside it in the text.
exists() { # PATH
    local pattern=${1//./\\.}
    compgen -G "$1" >/dev/null || grep -qE "/${pattern//\*/[^/]*}\$" "$T/files"
}

@test "each file that a document names exists" {
    local document path count=0
    cd "$ROOT"
    find .ci bench doc examples libgmsfs man packaging python scripts src tests web >"$T/files"
    for document in $(documents); do
        for path in $(named_paths "$document"); do
            exists "$path" || fail "$document names $path, which is not there"
            count=$((count + 1))
        done
    done
    ((count > 300)) || fail "only $count paths found: the test looks for the wrong words"
    run -1 exists src/core/no_such_file.c
    run -1 exists no_such_file.c
}

@test "each link in a document leads to a file" {
    local document link count=0
    cd "$ROOT"
    for document in $(documents); do
        while read -r link; do
            [[ -e ${document%/*}/$link || ($document != */* && -e $link) ]] ||
                fail "$document has a link to $link, which is not there"
            count=$((count + 1))
        done < <(grep -oE '\]\([^)#]+\)' "$document" | sed 's/^](//; s/)$//' | grep -v '^https\?:')
    done
    ((count > 40)) || fail "only $count links found"
}

@test "each commit that a recipe has as its example is in the history" {
    local commit count=0
    cd "$ROOT"
    requires history
    while read -r commit; do
        git cat-file -e "$commit^{commit}" || fail "doc/recipes.md names the commit $commit, which is not there"
        count=$((count + 1))
    done < <(grep -E '^Examples?:|Example: ' doc/recipes.md | grep -oE '\b[0-9a-f]{8}\b')
    ((count > 15)) || fail "only $count commits found"
}

# Prints the code in DOCUMENT: the lines between fences, and the texts between backticks, a line each.
code_of() { # DOCUMENT
    awk '/^ *```/ { on = !on; next } on' "$1"
    # shellcheck disable=SC2016 # backticks, literally
    grep -oE '`[^`]+`' "$1" | tr -d '`' || true
}

# Prints the commands of gmsfs that documents and manual pages name, a line each.
named_commands() {
    local document
    for document in $(documents); do
        code_of "$document"
    done | grep -oE '^(sudo )?(build/)?gmsfs [a-z][a-z-]+' | grep -oE '[a-z-]+$'
    grep -hoE '^\.(Ic|Nm) gmsfs [a-z][a-z-]+' man/*.[1-8] | grep -oE '[a-z-]+$'
    grep -hoE '^([#$] )?gmsfs [a-z][a-z-]+' man/*.[1-8] | grep -oE '[a-z-]+$'
}

@test "each command of gmsfs that documents and manual name has --help, and help names each" {
    local command commands
    cd "$ROOT"
    mapfile -t commands < <(named_commands | sort -u)
    ((${#commands[@]} > 15)) || fail "only ${#commands[@]} commands found: ${commands[*]}"
    run_logged -0 "$GMSFS" --help
    local help=$output
    for command in "${commands[@]}"; do
        [[ $command == copier ]] && continue # the daemon's own, of which help says nothing
        run_logged -0 "$GMSFS" "$command" --help
        [[ $help == *$'\n  '"$command "* ]] || fail "gmsfs --help does not list $command"
    done
}

# Prints the target after make, or the program, of the lines of code in DOCUMENT that begin with it.
named() { # make|PROGRAMS DOCUMENT
    local words=$1
    [[ $words != make ]] || words='make [a-z][a-z_.-]*[a-z]'
    code_of "$2" | grep -oE "^$words" | grep -oE '[a-z_./-]+$' | sort -u
}

@test "each script, target of make and check of the lint that documents name is there" {
    local document target script check targets=0 checks=0
    cd "$ROOT"
    for document in $(documents); do
        for target in $(named make "$document"); do
            grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" Makefile || fail "$document: make $target is no target"
            targets=$((targets + 1))
        done
        for script in $(named '(scripts/[a-z-]+|tests/run|bench/run|\.ci/run)' "$document"); do
            [[ -x $script ]] || fail "$document: $script does not run"
        done
    done
    ((targets > 20)) || fail "only $targets targets found"
    run_logged -0 tests/run --help
    run_logged -0 scripts/lint --list
    # shellcheck disable=SC2013 # words, not lines
    for check in $(sed -n 's/^scripts.lint \([a-z -]*[a-z]\) *#.*/\1/p' HACKING.md); do
        grep -qx -- "$check" <<<"$output" || fail "HACKING.md: the lint has no check $check"
        checks=$((checks + 1))
    done
    ((checks >= 2)) || fail "only $checks checks of the lint found"
}

@test "documents for newcomers stay short" {
    local name limit
    cd "$ROOT"
    while read -r name limit; do
        (($(wc -c <"$name") <= limit)) || fail "$name has more than $limit bytes"
    done <<'LIMITS'
README.md 8192
ARCHITECTURE.md 8192
HACKING.md 5120
doc/rules.md 3072
LIMITS
    (($(wc -l <CHANGELOG.md) <= 60)) || fail 'CHANGELOG.md has more than 60 lines'
    for name in doc/*.md; do
        [[ $name == doc/recipes.md ]] && continue
        (($(wc -c <"$name") <= 6144)) || fail "$name has more than 6144 bytes: make it two pages"
    done
}
