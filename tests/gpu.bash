# SPDX-License-Identifier: Apache-2.0
#
# What tests of the process that moves a GPU's bytes share.
#
# shellcheck shell=bash disable=SC2154 # KEEPER is start_mount's

# The copier's pid; none: fails.
copier() {
    local child children=()
    read -ra children < <(cat "/proc/$(worker_of "$KEEPER")"/task/*/children | tr '\n' ' ') || true
    for child in "${children[@]}"; do
        [[ $(cat "/proc/$child/comm") != gmsfs-copier ]] || process_gone "$child" || {
            echo "$child"
            return
        }
    done
    return 1
}

no_copier() {
    ! copier
}
