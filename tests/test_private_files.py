"""That no kernel and no measurement is read that another user can have written, and that no file makes a call hang."""

import os
import pathlib
import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tridiag.benchmarking import tuning
from tridiag.kernels.runtime import object_cache, private_files
from tridiag.selection import costs, measurements

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs users and modes of files, as POSIX has them"),
    pytest.mark.timeout(60),
]
is_root = hasattr(os, "geteuid") and os.geteuid() == 0
SOMEBODY = 4711  # a user who is neither this one nor root


def build() -> Any:
    """A kernel that compiles at once."""
    from numba import cfunc, types

    def triple(x: int) -> int:
        return 3 * x

    return cfunc(types.int64(types.int64))(triple)


def kernel_is_read() -> bool:
    """By a new process."""
    object_cache._kernels.clear()
    return object_cache.obtain("triple", build).found


def costs_are_read() -> bool:
    measurements.known.cache_clear()
    return measurements.known().origin == measurements.HERE


@pytest.fixture(params=["kernel", "costs"])
def kept(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file that is kept in a folder of its own, and whether it is read."""
    folder = tmp_path / "above" / "folder" / "tridiag"
    monkeypatch.setattr(object_cache, "folders", lambda: [folder])
    monkeypatch.setattr(object_cache, "_kernels", {})
    monkeypatch.setattr(object_cache, "_warned", False)
    monkeypatch.setattr(measurements, "path_of_machine", lambda: folder / "costs.json")
    if request.param == "kernel":
        assert not kernel_is_read()
        is_read = kernel_is_read
    else:
        measurements.write(folder / "costs.json", costs_of_this_machine())
        is_read = costs_are_read
    (path,) = folder.iterdir()
    yield path, is_read
    tuning.forget()


def costs_of_this_machine() -> dict[str, Any]:
    return {"format": costs.FORMAT, "conditions": measurements.conditions(), "done": [], "curves": {}, "calls": {}}


def replaced(make: Callable[[pathlib.Path], Any]) -> Callable[[pathlib.Path], None]:
    """Something else in the place of a file."""

    def replace(path: pathlib.Path) -> None:
        path.unlink()
        make(path)

    return replace


def listen(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        home = os.open(".", os.O_RDONLY)
        try:
            os.chdir(path.parent)  # the name of a socket is short
            server.bind(path.name)
        finally:
            os.fchdir(home)
            os.close(home)


def link(path: pathlib.Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def grow(path: pathlib.Path) -> None:
    os.truncate(path, 2**40)


def device(path: pathlib.Path) -> None:
    os.mknod(path, 0o20600, os.makedev(1, 5))  # /dev/zero


def make_pipe(path: pathlib.Path) -> None:
    os.mkfifo(path, 0o600)


def link_to(name: str) -> Callable[[pathlib.Path], None]:
    return lambda path: path.symlink_to(name)


def link_to_pipe(path: pathlib.Path) -> None:
    make_pipe(path.with_name("pipe"))
    path.symlink_to("pipe")


def move_away(folder: pathlib.Path) -> None:
    """To another disk, say."""
    folder.rename(folder.with_name("disk"))
    folder.symlink_to("disk")


def give_to_group(path: pathlib.Path) -> None:
    os.chown(path, -1, SOMEBODY)
    path.chmod(0o775)


def modes(*bits: int) -> Callable[[pathlib.Path], None]:
    """Of a file, its folder, and so on."""

    def change(path: pathlib.Path) -> None:
        for one, mode in zip((path, *path.parents), bits, strict=False):
            one.chmod(mode)

    return change


def give(path: pathlib.Path) -> None:
    os.chown(path, SOMEBODY, -1)


def of(place: int, change: Callable[[pathlib.Path], Any]) -> Callable[[pathlib.Path], None]:
    """The same for a folder above a file."""
    return lambda path: change(path.parents[place])


needs_root = pytest.mark.skipif(not is_root, reason="only root can give a file to another user, or make a device")
WRONGS = {
    "pipe": replaced(make_pipe),
    "socket": replaced(listen),
    "directory": replaced(os.mkdir),
    "link": link,
    "link to nothing": replaced(link_to("nothing")),
    "link to a pipe": replaced(link_to_pipe),
    "link to a device": replaced(link_to("/dev/zero")),
    "huge": grow,
    "file that all can write": modes(0o602),
    "file that a group can write": modes(0o660),
    "folder that all can write": of(0, modes(0o777)),
    "folder that a group can write": of(0, modes(0o770)),
    "sticky folder": of(0, modes(0o1777)),
    "folder above that all can write": of(1, modes(0o777)),
    "folder above that one": of(2, modes(0o777)),
}
WRONGS_OF_ROOT = {
    "device": replaced(device),
    "file of another user": give,
    "folder of another user": of(0, give),
    "folder above of another user": of(1, give),
    "folder above that another group can write": of(1, give_to_group),
}
ALL_WRONGS = [*WRONGS, *(pytest.param(name, marks=needs_root) for name in WRONGS_OF_ROOT)]


@pytest.mark.parametrize("wrong", ALL_WRONGS)
def test_what_somebody_else_can_have_written_is_not_read(kept: Any, wrong: str) -> None:
    """It is as if it were not there, which is said once; nothing is waited for."""
    path, is_read = kept
    assert is_read()
    (WRONGS | WRONGS_OF_ROOT)[wrong](path)
    with pytest.warns(RuntimeWarning) as caught:
        assert not is_read()
    assert len(caught) == 1 and str(path)[:20] in str(caught[0].message)


RIGHTS = {
    "folder above is sticky": of(1, modes(0o1777)),
    "folder above is a link": of(0, move_away),
    "all can read": modes(0o644, 0o755, 0o755),
    "nobody can write": modes(0o400, 0o500),
}


@pytest.mark.parametrize("right", RIGHTS)
def test_what_nobody_else_can_have_written_is_read(kept: Any, right: str) -> None:
    """/tmp is a good place for a folder of one's own; a cache folder may be a link to another disk."""
    path, is_read = kept
    RIGHTS[right](path)
    assert is_read()
    path.parent.resolve().chmod(0o700)


@needs_root
def test_what_root_has_kept_is_read_by_others_and_not_the_other_way_round(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "file"
    private_files.write(path, b"content")
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    os.chown(tmp_path, SOMEBODY, -1)
    assert private_files.read(path) == b"content"
    for one in (path, path.parent):
        os.chown(one, SOMEBODY, -1)
    assert private_files.read(path) == b"content"
    monkeypatch.undo()
    with pytest.raises(private_files.NotPrivateError, match="another user"):
        private_files.read(path)


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_what_is_kept_is_open_to_its_user_only(tmp_path: pathlib.Path, umask: int) -> None:
    """New folders too, whatever the umask; folders that are there stay as they are."""
    before, tmp_mode = os.umask(umask), tmp_path.stat().st_mode
    try:
        private_files.write(tmp_path / "a" / "b" / "file", b"content")
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b" / "file").stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode == tmp_mode
    assert private_files.read(tmp_path / "a" / "b" / "file") == b"content"


@pytest.mark.parametrize("wrong", ["pipe", "socket", "link", "huge", "file that all can write"])
def test_a_new_file_takes_the_place_of_a_wrong_one(kept: Any, wrong: str) -> None:
    """What a link points at is left alone."""
    path, _ = kept
    WRONGS[wrong](path)
    aside = path.with_name("elsewhere")
    before = aside.read_bytes() if aside.exists() else b""
    private_files.write(path, b"content")
    assert private_files.read(path) == b"content"
    assert (aside.read_bytes() if aside.exists() else b"") == before


def test_a_folder_of_earlier_versions_is_taken_back(kept: Any) -> None:
    """Under a lax umask they made folders and files that others can write: from the next write on they cannot."""
    path, is_read = kept
    path.parent.chmod(0o775)
    path.chmod(0o664)
    private_files.write(path, path.read_bytes())
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert is_read()


@needs_root
def test_nothing_is_kept_in_a_folder_of_another_user(kept: Any) -> None:
    """Nor is anything changed there; that is said once."""
    path, _ = kept
    path.unlink()
    give(path.parent)
    with pytest.raises(private_files.NotPrivateError):
        private_files.write(path, b"content")
    with pytest.warns(RuntimeWarning, match=f"belongs to another user, number {SOMEBODY}.*NUMBA_CACHE_DIR") as caught:
        assert not kernel_is_read() and not kernel_is_read()
    assert len(caught) == 1 and list(path.parent.iterdir()) == []


def test_links_that_wait_for_a_writer_are_not_followed(tmp_path: pathlib.Path) -> None:
    """The file is written beside its place under a name that cannot be guessed, and never through a link."""
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"mine")
    for name in ("file", f"file.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    private_files.write(path, b"content")
    assert victim.read_bytes() == b"mine" and not path.is_symlink()


def test_without_a_home_nothing_of_the_working_directory_is_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There "~" stays as it is."""
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("~/.local/share/tridiag/costs.json")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(measurements, "path_of_machine", lambda: path)
        measurements.known.cache_clear()
        assert "comes with tridiag" in measurements.known().origin
    with pytest.raises(FileNotFoundError, match="own"):
        measurements.write(path, {})
    tuning.forget()


@needs_root
def test_the_group_of_a_user_is_nobody_else(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every user has a group of the same name, folders of the user above may be writable by it."""
    assert private_files.is_own_group(os.getgid()) and not private_files.is_own_group(SOMEBODY)
    path = tmp_path / "above" / "folder" / "file"
    private_files.write(path, b"content")
    path.parents[1].chmod(0o775)
    assert private_files.read(path) == b"content"
    monkeypatch.setattr(private_files, "is_own_group", lambda group: False)
    with pytest.raises(private_files.NotPrivateError, match="other users can write"):
        private_files.read(path)
