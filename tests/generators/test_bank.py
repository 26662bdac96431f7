"""The bank returns the generator's images and makes none twice, whatever happens to processes and files."""

import errno
import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.filesize import decimal
from typer.testing import CliRunner
from waiting import LIMIT, wait_until

from fedeas.cli.bank import bank as commands
from fedeas.core.errors import InputError, RunError
from fedeas.generators import bank as bank_module
from fedeas.generators import slots as module
from fedeas.generators.bank import Bank
from fedeas.generators.base import checked_address, image_index
from fedeas.generators.slots import Address, shared

FINGERPRINT = hashlib.sha256(b"hashed").hexdigest()
NAME = FINGERPRINT[:16]
FAR = 2**32 - 1


class Hashed:
    """Pixels are a hash of the address; every address that is made gets a line in the log."""

    description = "pixels from a hash [of the address]"

    def __init__(self, batch_size=5, shape=(1, 3, 5), fingerprint=FINGERPRINT, log=None, delay=0.0):
        self.num_classes = 10
        self.batch_size = batch_size
        self.shape = shape
        self.fingerprint = fingerprint
        self.batches = []
        self.log = log
        self.delay = delay

    def sample(self, labels, index):
        labels, index = checked_address(labels, index, self.num_classes)
        pairs = list(zip(labels.tolist(), index.tolist(), strict=True))
        self.batches.append(pairs)
        if self.log is not None:
            with Path(self.log).open("a") as file:
                file.write("".join(f"{label} {number}\n" for label, number in pairs))
        time.sleep(self.delay)
        size = int(np.prod(self.shape))
        pixels = [hashlib.shake_128(f"{self.fingerprint} {pair}".encode()).digest(size) for pair in pairs]
        return np.frombuffer(b"".join(pixels), dtype=np.uint8).reshape(-1, *self.shape)


def request(clients=range(3), count=4, labels=(0, 7)):
    """Images of some classes for some clients: (labels, index)."""
    pairs = [(label, i) for client in clients for label in labels for i in image_index(client, count)]
    return tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)


def assert_exact(banked, at, found, made):
    """The images are those of the generator, and so many of them were read and made."""
    before = banked.found, banked.made
    assert np.array_equal(banked.sample(*at), Hashed(shape=banked.shape, fingerprint=banked.fingerprint).sample(*at))
    assert (banked.found - before[0], banked.made - before[1]) == (found, made)


def files(root):
    return sorted(root.glob(f"{NAME}/c*/k*.images"))


@contextmanager
def folder():
    """A fresh one for each example of a property."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def filled(tmp_path):
    """A bank that holds `request()`, 24 images in 6 files."""
    Bank(tmp_path).of(Hashed()).sample(*request())
    return tmp_path


numbers = st.one_of(st.integers(0, 12), st.integers(0, FAR))
addresses = st.tuples(st.integers(0, 9), st.integers(0, 5), numbers)
requests = st.lists(st.lists(addresses, max_size=25), max_size=4)


def as_arrays(triples):
    pairs = [(label, (client << 32) + number) for label, client, number in triples]
    return tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)


@given(requests, st.integers(1, 9), st.booleans())
@settings(max_examples=100)
def test_images_equal_the_generators_and_none_is_made_twice(sequence, batch_size, reopened):
    with folder() as root:
        generator, known = Hashed(batch_size), set()
        banked = Bank(root).of(generator)
        for triples in sequence:
            banked = Bank(root).of(generator) if reopened else banked
            wanted = set(triples)
            assert_exact(banked, as_arrays(triples), len(wanted & known), len(wanted - known))
            known |= wanted
        made = [pair for batch in generator.batches for pair in batch]
        assert len(made) == len(set(made)) == len(known)
        assert all(len(batch) <= batch_size for batch in generator.batches)
        assert Bank(root).kept(NAME).images == Bank(root).verify(NAME).checked == len(known)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30, unique=True), st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=60)
def test_batches_are_filled_across_clients_and_locks(clients, batch_size, most_locks):
    """All batches but the last are full, unless so many clients are locked that none of them may wait for more."""
    with folder() as root, pytest.MonkeyPatch.context() as patch:
        generator = Hashed(batch_size)
        Bank(root).of(generator).sample(*request(clients, 1, labels=[3, 4]))
        assert [len(batch) for batch in generator.batches[:-1]] == [batch_size] * (len(generator.batches) - 1)
        patch.setattr(bank_module, "MOST_LOCKS", most_locks)
        generator.batches.clear()
        assert_exact(Bank(root).of(generator), request(clients, 1, labels=[5, 6]), 0, 2 * len(clients))
        few = batch_size < 2 * most_locks
        assert not few or all(len(batch) == batch_size for batch in generator.batches[:-1])


def test_a_thousand_clients_do_not_exceed_the_limit_of_open_files(tmp_path):
    class Counting(Hashed):
        most = 0

        def sample(self, labels, index):
            self.most = max(self.most, len(list(Path("/dev/fd").iterdir())))
            return super().sample(labels, index)

    generator, before = Counting(batch_size=4096), len(list(Path("/dev/fd").iterdir()))
    assert_exact(Bank(tmp_path).of(generator), request(range(1000), 1, labels=[2]), 0, 1000)
    assert generator.most <= before + bank_module.MOST_LOCKS + 2
    assert len(generator.batches) == -(-1000 // bank_module.MOST_LOCKS)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_reading_present_images_takes_no_lock_and_writes_nothing(filled, monkeypatch):
    def refused(*_):
        raise AssertionError("took a lock")

    monkeypatch.setattr("fcntl.flock", refused)
    monkeypatch.setattr(os, "pwrite", refused)
    assert_exact(Bank(filled).of(Hashed()), request(), 24, 0)


def test_a_banked_generator_has_the_properties_of_its_generator(filled):
    banked = Bank(filled).of(Hashed(batch_size=3))
    assert (banked.num_classes, banked.shape, banked.batch_size) == (10, (1, 3, 5), 3)
    assert banked.fingerprint == FINGERPRINT
    assert banked.sample([], []).shape == (0, 1, 3, 5)
    assert_exact(Bank(filled / "again").of(banked), request(count=5), 0, 30)
    assert (banked.found, banked.made) == (24, 6)


@given(st.data())
@settings(max_examples=60)
def test_any_changed_byte_costs_one_image(data):
    with folder() as root:
        Bank(root).of(Hashed()).sample(*request())
        path = data.draw(st.sampled_from(files(root)))
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        label, client = int(path.parent.name[1:]), int(path.stem[1:])
        assert Bank(root).verify(NAME) == module.Verification(NAME, 24, (Address(label, client, place // 23),))
        generator = Hashed()
        assert_exact(Bank(root).of(generator), request(), 23, 1)
        assert generator.batches == [[(label, (client << 32) + place // 23)]]
        assert Bank(root).verify(NAME).damaged == ()


@given(st.integers(0, 4 * 23))
@settings(max_examples=40)
def test_a_truncated_file_costs_what_was_cut_off(size):
    with folder() as root:
        Bank(root).of(Hashed()).sample(*request())
        os.truncate(files(root)[2], size)
        cut = (Address(0, 2, size // 23),) if size % 23 else ()
        assert Bank(root).verify(NAME) == module.Verification(NAME, 20 + -(-size // 23), cut)
        assert_exact(Bank(root).of(Hashed()), request(), 20 + size // 23, 4 - size // 23)
        assert_exact(Bank(root).of(Hashed()), request(), 24, 0)


@given(st.integers(0, 12), st.integers(0, 12), st.binary(min_size=1, max_size=40))
@settings(max_examples=40)
def test_zeros_and_noise_are_never_read_as_images(place, slots, noise):
    """Whatever bytes a file starts with, holes included, the images read are right."""
    with folder() as root:
        banked = Bank(root).of(Hashed())
        path = root / NAME / "c0" / "k0.images"
        path.parent.mkdir()
        path.write_bytes(bytes(place) + noise + bytes(23 * slots))
        assert_exact(banked, request([0], 4, labels=[0]), 0, 4)


@pytest.mark.parametrize("target", ["c7/k0", "c0/k1", "c5/k0", "c0/k9"])
def test_images_in_the_wrong_place_are_noticed(filled, target):
    label, client = map(int, re.findall(r"\d+", target))
    path = filled / NAME / f"{target}.images"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(filled / NAME / "c0" / "k0.images", path)
    assert [address[:2] for address in Bank(filled).verify(NAME).damaged] == [(label, client)] * 4
    assert_exact(Bank(filled).of(Hashed()), request([client], 4, [label]), 0, 4)


def test_images_of_another_generator_are_noticed(filled):
    other = Hashed(fingerprint="ab" * 32)
    Bank(filled).of(other).sample(*request([0], 4, [0]))
    shutil.copy(filled / NAME / "c0" / "k0.images", filled / other.fingerprint[:16] / "c0" / "k0.images")
    assert_exact(Bank(filled).of(other), request([0], 4, [0]), 0, 4)
    assert_exact(Bank(filled).of(Hashed()), request(), 24, 0)


def test_images_beyond_a_hole_take_up_no_space(tmp_path):
    at = as_arrays([(1, 3, FAR), (1, 3, 0), (1, 3, 2**20)])
    assert_exact(Bank(tmp_path).of(Hashed(shape=(3, 8, 8))), at, 0, 3)
    kept = Bank(tmp_path).kept(NAME)
    assert (kept.images, kept.clients) == (3, 1)
    assert kept.bytes < 2**17 < 2**39 < files(tmp_path)[0].stat().st_size
    assert Bank(tmp_path).verify(NAME) == module.Verification(NAME, 3, ())


def test_a_hole_within_an_image_does_not_count_it_twice(tmp_path):
    Bank(tmp_path).of(Hashed(shape=(3, 128, 128)))
    path = tmp_path / NAME / "c1" / "k2.images"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(3 * 128 * 128)
        file.write(b"the end!")
    assert Bank(tmp_path).verify(NAME) == module.Verification(NAME, 1, (Address(1, 2, 0),))


def test_results_do_not_depend_on_the_block_size(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 23 * 3)
    assert_exact(Bank(tmp_path).of(Hashed()), request(count=20), 0, 120)
    assert_exact(Bank(tmp_path).of(Hashed()), request(count=20), 120, 0)
    assert Bank(tmp_path).kept(NAME).images == Bank(tmp_path).verify(NAME).checked == 120


def test_an_image_whose_digest_is_zero_is_kept(tmp_path, monkeypatch):
    """One image in 2**64 has such a digest; it is stored all the same."""

    class Zero:
        def __init__(self, *_, **__):
            pass

        def copy(self):
            return self

        def update(self, _):
            pass

        def digest(self):
            return bytes(8)

    monkeypatch.setattr(module, "blake2b", Zero)
    Bank(tmp_path).of(Hashed()).sample(*request())
    assert_exact(Bank(tmp_path).of(Hashed()), request(), 24, 0)


def test_a_disk_error_while_reading_costs_the_image_there(filled, monkeypatch):
    real, broken = os.pread, files(filled)[0].stat().st_ino

    def pread(descriptor, count, offset):
        if os.fstat(descriptor).st_ino == broken and offset <= 30 < offset + count:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, count, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        assert_exact(Bank(filled).of(Hashed()), request(), 23, 1)
    assert_exact(Bank(filled).of(Hashed()), request(), 24, 0)


def test_a_read_error_other_than_damage_is_raised_and_no_image_is_made(filled, monkeypatch):
    def pread(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    generator = Hashed()
    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(RunError, match="Cannot allocate memory"):
        Bank(filled).of(generator).sample(*request())
    assert generator.batches == []


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, offset: real(descriptor, content[:10], offset))
    assert_exact(Bank(tmp_path).of(Hashed()), request(), 0, 24)
    assert_exact(Bank(tmp_path).of(Hashed()), request(), 24, 0)


@given(st.integers(0, 24 * 23))
@settings(max_examples=40)
def test_a_full_disk_keeps_what_was_written(room):
    with folder() as root, pytest.MonkeyPatch.context() as patch:
        left, real = [room], os.pwrite

        def pwrite(descriptor, content, offset):
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = real(descriptor, content[: left[0]], offset)
            left[0] -= written
            return written

        patch.setattr(os, "pwrite", pwrite)
        banked = Bank(root).of(Hashed())
        if room < 24 * 23:
            with pytest.raises(RunError, match=r"k\d\.images: cannot be used \(No space left on device\)") as caught:
                banked.sample(*request())
            assert caught.value.exit_code == 3
        else:
            banked.sample(*request())
        left[0] = 10**6
        assert_exact(banked, request(), room // 23, 24 - room // 23)


def test_an_error_of_the_generator_is_passed_on_and_frees_the_locks(tmp_path):
    class Failing(Hashed):
        def sample(self, labels, index):
            if len(self.batches) == 2:
                raise FileNotFoundError("weights")
            return super().sample(labels, index)

    with pytest.raises(FileNotFoundError, match="weights"):
        Bank(tmp_path).of(Failing()).sample(*request())
    assert_exact(Bank(tmp_path).of(Hashed()), request(), 10, 14)


CHILD = """
import sys
sys.path[:0] = {folders!r}
from test_bank import child
child(*sys.argv[1:])
"""


def child(root, clients, count, batch_size, delay):
    """Another process that fills a bank; it prints what it found and made."""
    banked = Bank(root).of(Hashed(int(batch_size), log=Path(root).with_suffix(".log"), delay=float(delay)))
    print("ready", flush=True)
    sys.stdin.readline()
    at = request(json.loads(clients), int(count))
    good = np.array_equal(banked.sample(*at), Hashed().sample(*at))
    print(json.dumps([good, banked.found, banked.made]), flush=True)


def start(root, clients, count=4, batch_size=5, delay=0.01):
    script = CHILD.format(folders=[str(folder) for folder in Path(__file__).parents[:2]])
    arguments = [str(root), json.dumps(list(clients)), str(count), str(batch_size), str(delay)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", script, *arguments], **pipes)


def go(*processes):
    """Let them begin at the same time."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def logged(root):
    return root.with_suffix(".log").read_text().splitlines() if root.with_suffix(".log").exists() else []


def test_processes_that_fill_at_once_share_the_work(tmp_path):
    root = tmp_path / "bank"
    overlapping = (range(12), range(15, -1, -1), range(6, 18))
    processes = [start(root, clients) for clients in overlapping]
    go(*processes)
    results = [json.loads(process.communicate(timeout=LIMIT)[0]) for process in processes]
    assert [good for good, _, _ in results] == [True] * 3
    assert [found + made for _, found, made in results] == [8 * len(clients) for clients in overlapping]
    assert len(logged(root)) == len(set(logged(root))) == sum(made for _, _, made in results) == 8 * 18


def test_a_killed_process_loses_one_batch_and_its_locks(tmp_path):
    root = tmp_path / "bank"
    process = start(root, range(8), delay=0.2)
    go(process)
    wait_until(lambda: len(logged(root)) >= 20)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT)
    made, kept = len(logged(root)), Bank(root).kept(NAME).images
    assert made - 5 <= kept <= made < 64
    assert Bank(root).verify(NAME).damaged == ()
    assert_exact(Bank(root).of(Hashed()), request(range(8)), kept, 64 - kept)


def test_threads_share_the_work_too(tmp_path):
    generator = Hashed(delay=0.002)
    banks = [Bank(tmp_path).of(generator) for _ in range(4)]
    wanted = [request(range(i, i + 8)) for i in range(4)]
    threads = [threading.Thread(target=each.sample, args=at) for each, at in zip(banks, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert sum(each.made for each in banks) == 8 * 11
    assert sum(each.found + each.made for each in banks) == 4 * 64


def test_a_bank_in_use_is_not_pruned(tmp_path):
    banked = Bank(tmp_path).of(Hashed())

    class Pruning(Hashed):
        def sample(self, labels, index):
            with pytest.raises(InputError, match="another process is filling this bank; wait for it"):
                Bank(tmp_path).prune(NAME)
            return super().sample(labels, index)

    banked.generator = Pruning()
    assert_exact(banked, request(), 0, 24)
    assert Bank(tmp_path).prune(NAME).images == 24
    assert_exact(banked, request(), 0, 24)
    assert Bank(tmp_path).kept(NAME).images == 24


def test_a_write_in_progress_is_not_damage(filled, monkeypatch):
    """Verification finds a half-written slot: it waits for the client's lock and checks again."""
    path, done = files(filled)[0], threading.Event()
    whole = path.read_bytes()
    path.write_bytes(b"torn" + whole[4:])
    real = module.Disk.client_locked

    def finished_first(disk, client):
        path.write_bytes(whole)
        done.set()
        return real(disk, client)

    monkeypatch.setattr(module.Disk, "client_locked", finished_first)
    assert Bank(filled).verify(NAME).damaged == ()
    assert done.is_set()


def renamed(root):
    other = "12" * 32
    (root / NAME).rename(root / other[:16])
    return Hashed(fingerprint=other)


def rewritten(**changes):
    def change(root):
        path = root / NAME / "generator.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return Hashed()

    return change


def broken(text):
    def change(root):
        (root / NAME / "generator.json").write_bytes(text)
        return Hashed()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            renamed,
            f"holds images of generator {FINGERPRINT} .*, not 1212121212121212.*; remove it with `fedeas bank prune",
        ),
        (rewritten(fingerprint=NAME + "0" * 48), f"generator {NAME}000.*, not {FINGERPRINT} "),
        (rewritten(shape=[1, 5, 3]), rf"generator {FINGERPRINT} \(10 classes of 1 x 5 x 3\), not .*of 1 x 3 x 5\)"),
        (rewritten(num_classes=11), rf"\(11 classes of .*, not {FINGERPRINT} \(10 classes"),
        (rewritten(format="fedeas-bank-0"), "unusable .written by another version of fedeas.; remove it with"),
        (rewritten(shape=[0, 1, 1]), "unusable .its fingerprint or shape cannot be right"),
        (rewritten(fingerprint="../.."), "unusable .its fingerprint or shape cannot be right"),
        (rewritten(more=1), "unusable"),
        (broken(b"{}"), f"{NAME}/generator.json: unusable .*; remove it with `fedeas bank prune {NAME} --bank"),
    ],
)
def test_a_bank_of_another_or_an_unknown_generator_is_refused_and_can_be_pruned(filled, change, message):
    generator = change(filled)
    with pytest.raises(InputError, match=message):
        Bank(filled).of(generator)
    result = run("prune", generator.fingerprint[:16], bank=filled)
    assert result.exit_code == 0
    assert_exact(Bank(filled).of(generator), request(), 0, 24)


def test_a_file_cut_within_an_image_is_reported_and_pruned(filled):
    os.truncate(files(filled)[2], 30)
    assert isinstance(run("verify", bank=filled).exception, RunError)
    assert run("prune", "--damaged", bank=filled).exit_code == 0
    assert run("verify", bank=filled).exit_code == 0
    assert_exact(Bank(filled).of(Hashed()), request(), 21, 3)


def test_the_header_tells_what_the_images_are(filled):
    assert json.loads((filled / NAME / "generator.json").read_text()) == {
        "format": "fedeas-bank-1",
        "fingerprint": FINGERPRINT,
        "num_classes": 10,
        "shape": [1, 3, 5],
        "description": Hashed.description,
    }


@pytest.mark.parametrize("text", [None, b"", b"\xff\x00", b"[]", b'{"format": "fed'])
def test_a_lost_or_damaged_header_is_written_again_and_costs_no_image(filled, text):
    header = filled / NAME / "generator.json"
    before = header.read_bytes()
    header.unlink() if text is None else header.write_bytes(text)
    if text is not None:
        assert "damaged; a run with this generator" in str(run("verify", bank=filled).exception)
    assert_exact(Bank(filled).of(Hashed()), request(), 24, 0)
    assert header.read_bytes() == before


def failing(**changes):
    generator = Hashed()
    for name, value in changes.items():
        setattr(generator, name, value)
    return generator


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda root: Bank(root).of(Hashed()).sample([10], [0]), "label 10 is not between 0 and 9"),
        (lambda root: Bank(root).of(Hashed()).sample([1], [-2]), "index -2 is below 0"),
        (
            lambda root: Bank(root).of(failing(fingerprint="../../../etc/passwd")),
            "fingerprint '../../../etc/passwd' is",
        ),
        (lambda root: Bank(root).of(failing(fingerprint="abc")), "fingerprint 'abc' is not made of 16 or more digits"),
        (lambda root: Bank(root).of(failing(batch_size=0)), "batch_size must be at least 1, not 0"),
        (lambda root: Bank(root / "file").of(Hashed()), "cannot be (created|used) .*; choose another place"),
        (lambda root: shared(root).__enter__(), "cannot be used .*; choose another place"),
        (lambda root: Bank(root).name("..") and None, "'..' is no fingerprint; give its first digits"),
        (lambda root: Bank(root).name("") and None, "'' is no fingerprint"),
        (lambda root: Bank(root).name("0123"), "nothing of a generator 0123; `fedeas bank ls` lists what there is"),
        (lambda root: Bank(root).name(NAME + "ffff"), f"nothing of a generator {NAME}ffff"),
    ],
)
def test_what_cannot_be_used_is_refused(filled, call, message):
    (filled / "file").write_text("")
    with pytest.raises(InputError, match=message):
        call(filled)


def test_a_generator_that_returns_the_wrong_type_is_refused(tmp_path):
    class Wrong(Hashed):
        def sample(self, labels, index):
            return super().sample(labels, index).astype(float)

    with pytest.raises(InputError, match="the generator returned float64"):
        Bank(tmp_path).of(Wrong()).sample([0], [0])


def test_results_do_not_depend_on_the_memory_layout_of_the_generators_arrays(tmp_path):
    class Strided(Hashed):
        def sample(self, labels, index):
            return np.repeat(super().sample(labels, index), 2, axis=3)[..., ::2]

    for batch_size in (1, 5):
        assert_exact(Bank(tmp_path / str(batch_size)).of(Strided(batch_size)), request(), 0, 24)


def test_it_can_be_sent_to_other_processes(filled):
    assert_exact(pickle.loads(pickle.dumps(Bank(filled).of(Hashed()))), request(), 24, 0)


def test_a_bank_that_cannot_be_written_can_be_read(filled, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    monkeypatch.setattr(os, "utime", refused)
    assert_exact(Bank(filled).of(Hashed()), request(), 24, 0)
    with pytest.raises(InputError, match="Permission denied"):
        Bank(filled).of(Hashed()).sample(*request(count=5))
    with pytest.raises(InputError, match="Permission denied"):
        Bank(filled / "new").of(Hashed())


def run(*arguments, bank):
    return CliRunner().invoke(commands, [*arguments, "--bank", str(bank)], env={"COLUMNS": "120"})


def damage(root, *places):
    for path, number in places:
        content = bytearray((root / NAME / path).read_bytes())
        content[23 * number] ^= 1
        (root / NAME / path).write_bytes(content)


def test_ls_shows_each_generator(filled):
    before = time.time()
    Bank(filled).of(Hashed(fingerprint="ab" * 32)).sample(*request(range(1200), 1, [0]))
    Bank(filled).of(Hashed(fingerprint="cd" * 32))
    (filled / ("cd" * 8) / "generator.json").write_text("{")
    (filled / "notes").mkdir()
    result = run("ls", bank=filled)
    lines = [line.strip() for line in result.stdout.splitlines()]
    lines.reverse()  # the reasons stand below the table and may name a generator, too
    rows = {line.split()[0]: line for line in lines if re.match("[0-9a-f]{16} ", line)}
    assert set(rows) == {NAME, "ab" * 8, "cd" * 8}
    assert re.search(r"pixels from a hash \[of the address\] +24 +3 +[\d.]+ kB +\d{4}-\d\d-\d\d \d\d:\d\d$", rows[NAME])
    assert " 1,200 " in rows["ab" * 8]
    assert "unusable" in rows["cd" * 8]
    assert "fedeas bank prune cdcdcdcdcdcdcdcd" in re.sub(r"\s+", " ", result.stdout)
    assert before - 60 < Bank(filled).kept("ab").used < time.time() + 60  # clocks of file systems are coarse


def test_ls_tells_generators_without_a_description_apart(tmp_path):
    class Stripes(Hashed):
        description = ""

    Bank(tmp_path).of(Stripes())
    assert Bank(tmp_path).kept(NAME).description == "Stripes"
    header = tmp_path / NAME / "generator.json"
    header.write_text(header.read_text().replace("Stripes", ""))  # as in older banks
    assert "1 x 3 x 5" in Bank(tmp_path).kept(NAME).description
    assert_exact(Bank(tmp_path).of(Stripes()), request(), 0, 24)


def test_verify_says_what_is_damaged(filled):
    result = run("verify", bank=filled)
    assert (result.exit_code, result.stdout) == (0, "all 24 images are good\n")
    damage(filled, ("c7/k2.images", 3), ("c0/k1.images", 0))
    result = run("verify", NAME[:5], FINGERPRINT.upper(), bank=filled)
    assert isinstance(result.exception, RunError)
    assert result.exception.exit_code == 3
    assert "2 of 24 images are damaged; they will be generated again at their next use" in str(result.exception)
    assert result.stdout.splitlines() == [
        f"{NAME}: class 0, client 1, image 0 is damaged",
        f"{NAME}: class 7, client 2, image 3 is damaged",
    ]


def test_verify_lists_the_first_few(filled):
    for path in files(filled):
        path.write_bytes(path.read_bytes()[::-1])
    result = run("verify", bank=filled)
    assert result.stdout.splitlines()[-1] == f"{NAME}: and 14 more"


def test_prune_removes_damaged_images_only(filled):
    damage(filled, ("c7/k2.images", 3), ("c0/k1.images", 0))
    result = run("prune", "--damaged", bank=filled)
    assert (result.exit_code, result.stdout) == (0, f"{NAME}: 2 of 24 images were damaged and are removed\n")
    assert run("verify", bank=filled).stdout == "all 22 images are good\n"
    assert_exact(Bank(filled).of(Hashed()), request(), 22, 2)


def test_prune_removes_what_is_named(filled):
    Bank(filled).of(Hashed(fingerprint="ab" * 32)).sample(*request())
    freed = decimal(Bank(filled).kept("abab").bytes)
    result = run("prune", "abab", "ab" * 32, bank=filled)
    assert (result.exit_code, result.stdout) == (0, f"{'ab' * 8}: 24 images removed, {freed} freed\n")
    assert Bank(filled).names() == [NAME]
    assert run("prune", "--all", bank=filled).exit_code == 0
    assert Bank(filled).names() == []


def test_prune_looks_everything_up_before_it_removes_anything(filled):
    Bank(filled).of(Hashed(fingerprint="ab" * 32))
    Bank(filled).of(Hashed(fingerprint="abc" * 20))
    for arguments, message in {
        (): "nothing chosen; give fingerprints",
        (NAME, "--all"): "--all goes with neither fingerprints nor --damaged",
        ("--all", "--damaged"): "--all goes with neither fingerprints nor --damaged",
        (NAME, "77"): "nothing of a generator 77",
        (NAME, "ab"): "ab may be abababababababab or abcabcabcabcabca; give more digits",
        (NAME, "../x"): "'../x' is no fingerprint",
    }.items():
        result = run("prune", *arguments, bank=filled)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)
    assert Bank(filled).verify(NAME).checked == 24


@pytest.mark.parametrize("command", [["ls"], ["verify"], ["prune", "--all"], ["prune", "--damaged"]])
def test_commands_work_on_an_empty_bank(tmp_path, command):
    result = run(*command, bank=tmp_path / "none")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).endswith("none: no generated images are kept here")
    assert not (tmp_path / "none").exists()
