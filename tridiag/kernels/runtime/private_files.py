"""Files that are kept from process to process, kernels and measurements: only those that nobody else can have written.

A file that is read is a regular file of this user or of root that nobody else can write, in a folder of which the same
holds. So it is, up to the root, for each folder above, where others could put another folder in the place of one; those
may be sticky, as /tmp is, or writable by the user's own group. What is looked at is what is read: one descriptor. On
Windows, whose users' folders are their own, nothing is looked at.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # of POSIX alone
    fcntl = None

LOCK = ".lock"  # what the name of a file ends with that is locked in the place of another one
LARGEST = 2**26  # bytes of a file; the largest kernel has a twentieth of it
OTHERS = stat.S_IWGRP | stat.S_IWOTH  # who may write, beside the owner
UNMAPPED = 65534  # whom Linux shows in a container in place of users that are not known there, often root
READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
POSIX = os.name == "posix"


class NotPrivateError(OSError):
    """Somebody else may have written a file, or it is none."""


def read(path: Path) -> bytes:
    """The content of a file; NotPrivateError where it is not to be trusted, FileNotFoundError where there is none."""
    if not POSIX:
        return path.read_bytes()
    found = real_folder(path) / path.name
    check_regular(path, found.lstat())
    check_folders(found.parent)
    descriptor = os.open(found, READ)
    try:
        status = os.fstat(descriptor)
        check_regular(path, status)
        check_owner(path, status)
        if status.st_size > LARGEST:
            raise NotPrivateError(f"{path} has {status.st_size} bytes, more than anything that tridiag keeps")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, that nobody else can write, in a folder of which the same holds."""
    check_absolute(path)
    make_folder(path.parent)
    folder = real_folder(path)
    if POSIX:
        take_back(folder)
        check_folders(folder)
    partial = folder / f"{path.name}.{uuid.uuid4().hex}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(partial, flags | getattr(os, "O_CLOEXEC", 0), 0o600), "wb") as file:
            file.write(content)
        partial.replace(folder / path.name)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def turn(path: Path, seconds: float) -> Iterator[None]:
    """One process at a time makes a file: look again whether it is there.

    Who has waited so long goes on, as does everybody where files cannot be locked: then it is made more than once.
    """
    lock = None
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        check_folders(real_folder(path))
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        lock = os.open(place := f"{path}{LOCK}", flags | getattr(os, "O_CLOEXEC", 0), 0o600) if fcntl else None
    try:
        if lock is not None:
            wait_for(lock, seconds)
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(place)
            os.close(lock)  # which gives the lock back; a process that ends, however it does, gives it back as well


def wait_for(lock: int, seconds: float) -> None:
    """Lock a file, if that can be done in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return


def real_folder(path: Path) -> Path:
    """The folder of a file, whichever links lead there."""
    check_absolute(path)
    return Path(os.path.realpath(path.parent, strict=True))


def check_absolute(path: Path) -> None:
    """Where there is no home a path may begin in the working directory, which may be anybody's."""
    if not path.is_absolute():
        raise FileNotFoundError(f"{path} is in no folder of the user's own")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, which are open to this user only."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def take_back(folder: Path) -> None:
    """Nobody else may write into a folder of this user's; under a lax umask earlier versions have made such folders."""
    status = folder.lstat()
    if status.st_mode & OTHERS and status.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)


def check_folders(folder: Path) -> None:
    """Whether nobody else can change what is in a folder, nor put another one in its place."""
    check_owner(folder, folder.lstat())
    for above in folder.parents:
        status = above.lstat()
        if status.st_uid not in (os.geteuid(), 0, UNMAPPED):
            raise NotPrivateError(f"{above} belongs to another user, number {status.st_uid}")
        others = OTHERS & ~stat.S_IWGRP if is_own_group(status.st_gid) else OTHERS
        if status.st_mode & others and not status.st_mode & stat.S_ISVTX:
            raise NotPrivateError(f"other users can write {above}, mode {stat.S_IMODE(status.st_mode):o}")


def check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        link = "a symbolic link, " * stat.S_ISLNK(status.st_mode)
        raise NotPrivateError(f"{path} is {link}no regular file")


def check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise NotPrivateError(f"{path} belongs to another user, number {status.st_uid}")
    if status.st_mode & OTHERS:
        raise NotPrivateError(f"other users can write {path}, mode {stat.S_IMODE(status.st_mode):o}; `chmod go-w` it")


def is_own_group(group: int) -> bool:
    """Whether this user is the only one of a group: it has the user's name, as is the custom on many systems."""
    import grp
    import pwd

    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return found.gr_name == user.pw_name and group == user.pw_gid and not {*found.gr_mem} - {user.pw_name}
