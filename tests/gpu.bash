# SPDX-License-Identifier: Apache-2.0
# Shared by tests over the fake driver, above all those of the process that moves a GPU's bytes.
# shellcheck shell=bash disable=SC2034,SC2154 # KEEPER is start_mount's

# Prints the copier's pid; fails if there is none.
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
