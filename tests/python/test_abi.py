# SPDX-License-Identifier: Apache-2.0
"""The structures of python/gmsfs/abi.py against the header, by a C program made from both."""

import ctypes
import os
import re
import subprocess
import tempfile
import unittest

from gmsfs import abi, memory, regions

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
HEADERS = os.path.join(ROOT, "libgmsfs")
STRUCTURES = {
    "struct gmsfs_info": abi.Info,
    "struct gmsfs_memory_info": abi.MemoryInfo,
    "struct gmsfs_handle_info": abi.HandleInfo,
    "struct gmsfs_mapping": abi.Mapping,
    "struct gmsfs_metadata": abi.Metadata,
    "struct gmsfs_layout_allocation": abi.LayoutAllocation,
    "struct gmsfs_layout_entry": abi.LayoutEntry,
    "struct gmsfs_layout": abi.Layout,
    "struct gmsfs_graph_stats": abi.GraphStats,
    "struct gmsfs_graph_space_stats": abi.GraphSpaceStats,
    "struct gmsfs_region_info": abi.RegionInfo,
    "struct gmsfs_region_request": abi.RegionRequest,
}
CONSTANTS = {
    "GMSFS_MODE_RO": abi.MODE_RO,
    "GMSFS_MODE_RW": abi.MODE_RW,
    "GMSFS_MODE_RW_OR_RO": abi.MODE_RW_OR_RO,
    "GMSFS_MODE_RW_DATA": abi.MODE_RW_DATA,
    "GMSFS_MODE_RW_DATA_OR_RW": abi.MODE_RW_DATA_OR_RW,
    "GMSFS_ACCESS_READ": abi.ACCESS_READ,
    "GMSFS_ACCESS_WRITE": abi.ACCESS_WRITE,
    "GMSFS_COMMIT_STAY": abi.COMMIT_STAY,
    "GMSFS_COMMIT_GROUP": abi.COMMIT_GROUP,
    "GMSFS_COMMIT_IMMUTABLE": abi.COMMIT_IMMUTABLE,
    "GMSFS_GROUP_MAX": abi.GROUP_MAX,
    "GMSFS_CONNECT_REPLACE": abi.CONNECT_REPLACE,
    "GMSFS_RESIDENCY_DEVICE": abi.RESIDENCY["device"],
    "GMSFS_RESIDENCY_HOST": abi.RESIDENCY["host"],
    "GMSFS_RESIDENCY_DISK": abi.RESIDENCY["disk"],
    "GMSFS_TIMEOUT_FOREVER": abi.TIMEOUT_FOREVER,
    "GMSFS_SLOT_NONE": abi.SLOT_NONE,
    "GMSFS_KEY_MAX": abi.KEY_MAX,
    "GMSFS_NAME_MAX": abi.NAME_MAX,
    "GMSFS_VALUE_MAX": abi.VALUE_MAX,
    "GMSFS_TOKEN_BYTES": abi.TOKEN_BYTES,
    "GMSFS_HASH_TEXT_BYTES": abi.HASH_TEXT_BYTES,
    "GMSFS_DEVICE_ERROR_BYTES": abi.DEVICE_ERROR_BYTES,
    **{f"GMSFS_REGION_{name.upper()}": i for i, (name, _) in enumerate(regions.REASONS)},
    "GMSFS_REGION_NAME_MAX": abi.REGION_NAME_MAX,
    "GMSFS_REGION_KEY_MAX": abi.REGION_KEY_MAX,
    "GMSFS_REGION_HANDLE_BYTES": abi.REGION_HANDLE_BYTES,
    "GMSFS_REGION_SELF": abi.REGION_SELF,
    "GMSFS_REGION_DRAINING": abi.REGION_DRAINING,
    "GMSFS_REGION_WRITABLE": abi.REGION_WRITABLE,
    "GMSFS_REGION_ALLOCATION": abi.REGION_ALLOCATION,
    "GMSFS_REGION_DESCRIPTOR": abi.REGION_DESCRIPTOR,
    "GMSFS_GRAPH_KEEP": abi.GRAPH_KEEP,
    "GMSFS_GRAPH_EAGER": abi.GRAPH_EAGER,
    "GMSFS_GRAPH_ORDER": abi.GRAPH_ORDER,
    "GMSFS_GRAPH_REFUSE": abi.GRAPH_REFUSE,
    "GMSFS_GRAPH_CHUNK_BYTES": abi.GRAPH_CHUNK_BYTES,
    **{f"GMSFS_MEMORY_{kind.name.upper()}": number for number, kind in enumerate(memory.KINDS)},
}


def questions():
    """Returns (statements of a C program that print facts, the lines expected from it)."""
    lines, want = [], []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        want.append(f"{name} {ctypes.sizeof(structure)}")
        for field, *_ in structure._fields_:
            found = getattr(structure, field)
            lines.append(
                f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                f"sizeof((({name} *)0)->{field}));"
            )
            want.append(f"{name}.{field} {found.offset} {found.size}")
    for name, number in CONSTANTS.items():
        lines.append(f'printf("{name} %llu\\n", (unsigned long long){name});')
        want.append(f"{name} {number}")
    lines.append('#define WORD(word, number) printf("state %d " #word "\\n", number);')
    lines.append("GMSFS_STATE_LIST(WORD)")
    want += [f"state {number} {word}" for number, word in enumerate(abi.STATES)]
    return lines, want


class Abi(unittest.TestCase):
    def test_structures_and_constants_are_those_of_the_header(self):
        lines, want = questions()
        with tempfile.TemporaryDirectory() as scratch:
            source, program = os.path.join(scratch, "abi.c"), os.path.join(scratch, "abi")
            with open(source, "w", encoding="ascii") as file:
                file.write(
                    "#include <gmsfs_graph.h>\n#include <gmsfs_region.h>\n#include <stdio.h>\n"
                    + "int main(void)\n{\n"
                    + "\n".join(lines)
                    + "\nreturn 0;\n}\n"
                )
            compiler = os.environ.get("CC", "cc").split()
            subprocess.run([*compiler, f"-I{HEADERS}", "-o", program, source], check=True)
            said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(said.splitlines(), want)

    def test_prototypes_have_the_parameters_of_the_header(self):
        header = ""
        for name in ("gmsfs.h", "gmsfs_memory.h", "gmsfs_graph.h", "gmsfs_region.h"):
            with open(os.path.join(HEADERS, name), encoding="utf-8") as file:
                header += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        declared = {
            name: [part for part in parameters.split(",") if part.strip() != "void"]
            for name, parameters in re.findall(r"\b(gmsfs_\w+)\(([^()]*)\);", header)
        }
        for name, (_, parameters) in abi.PROTOTYPES.items():
            self.assertEqual(len(parameters), len(declared[name]), name)
            for ours, theirs in zip(parameters, declared[name]):
                self.assertEqual(
                    is_pointer(ours), "*" in theirs or "[" in theirs, f"{name}: {theirs}"
                )

    def test_the_soname_is_that_of_the_makefile(self):
        with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
            self.assertRegex(file.read(), rf"(?m)^SONAME +:= {abi.SONAME}$")


def is_pointer(kind):
    return (
        kind in (ctypes.c_void_p, ctypes.c_char_p)
        or hasattr(kind, "contents")
        or issubclass(kind, ctypes.Array)
    )
