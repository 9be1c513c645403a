"""Runs a command whose synchronisation calls, and those of all that it starts, return at once and do nothing.

without_syncs.py COMMAND ARGUMENT...: a filter of system calls (seccomp) answers them with success, also in programs that are linked
statically, where a preloaded library is not asked. `msync` is left: what a mapping has changed is not in the file without it."""

import ctypes
import os
import struct
import sys

# The architecture's number for filters, then fsync, fdatasync, sync, syncfs, sync_file_range.
NUMBERS = {
    "x86_64": (0xC000003E, (74, 75, 162, 306, 277)),
    "aarch64": (0xC00000B7, (82, 83, 81, 267, 84)),
}
# Instructions of a filter: load a word, go on or jump if it is equal, return.
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, ARCHITECTURE = 0, 4
ALLOWED, ANSWERED_WITH_0 = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38


def filter_of(architecture, calls):
    """The filter, eight bytes an instruction: code, jump if equal, jump if not, value."""
    program = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, ALLOWED), (LOAD, 0, 0, NUMBER)]
    program += [(EQUAL, len(calls) - nth, 0, call) for nth, call in enumerate(calls)]
    program += [(RETURN, 0, 0, ALLOWED), (RETURN, 0, 0, ANSWERED_WITH_0)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def install(program):
    text = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    zero = ctypes.c_ulong(0)
    for option in [(PR_SET_NO_NEW_PRIVS, 1, zero), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head)]:
        if prctl(option[0], ctypes.c_ulong(option[1]), option[2], zero, zero) != 0:
            sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")


machine = os.uname().machine
if machine not in NUMBERS:
    sys.exit(f"no filter for {machine}: add its numbers of system calls")
install(filter_of(*NUMBERS[machine]))
os.execvp(sys.argv[1], sys.argv[1:])
