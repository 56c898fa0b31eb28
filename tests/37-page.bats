#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The page of `gmsfs web` (web/): its pure modules in node, and its HTML.

load helpers

@test "the pure modules of the page read what mounts say, and hostile bytes" {
    requires node
    run_logged -0 node --test "$ROOT"/tests/web/
}

@test "the page has no script, style or address of another host in its HTML" {
    ! grep -E '<script>|<style| style=| on[a-z]+=|https?://' "$ROOT/web/index.html" || fail 'its policy forbids them'
    ! grep -E "https?://|import .* from ['\"][^.]|innerHTML|outerHTML|insertAdjacentHTML|document.write|eval\(" "$ROOT"/web/*.js |
        grep -v 'http://www.w3.org/2000/svg' || fail 'the page is of this tree alone, and no text becomes markup'
}
