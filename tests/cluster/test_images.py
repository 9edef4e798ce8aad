"""What is in the images that were built: little enough, all that it takes, and no secret of the machine that built them."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from scripts.images import build
from scripts.images.build import Builder, Image

from .conftest import SECRET_MARK, Images, builder

pytestmark = pytest.mark.slow

MOST_PAYLOAD_BYTES = 250_000_000


def files(image: Image) -> dict[str, int]:
    """Length by path, of all layers."""
    found: dict[str, int] = {}
    with tarfile.open(image.archive) as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith(".tar"):
                layer = archive.extractfile(member)
                assert layer is not None
                with tarfile.open(fileobj=layer) as inner:
                    found |= {each.name: each.size for each in inner.getmembers() if each.isfile()}
    return found


def test_the_payload_is_small_and_whole(images: Images) -> None:
    found = files(images.payload)
    assert sum(found.values()) < MOST_PAYLOAD_BYTES
    assert {
        "stitchfleet-copy",
        "stitchfleet-start",
        "bin/busybox",
        "payload/python/ziglang/zig",
        "payload/python/stitchfleet/plugin/bootstrap/sitecustomize.py",
    } <= set(found)
    natives = [
        path
        for path in found
        if re.fullmatch(r"payload/native/tf-2\.15\.1-[0-9a-f]{16}/libstitchfleet_tf(_gpu)?\.so", path)
    ]
    assert len(natives) == 2
    assert not any("musl" in path for path in found)


def test_the_training_image_has_no_compiler_and_no_stitchfleet(images: Images) -> None:
    found = set(files(images.demo))
    assert not [
        path for path in found if re.fullmatch(r"(usr/)?bin/(.*-)?(g\+\+|gcc|cc|c\+\+|clang.*|zig|ld|as)(-\d+)?", path)
    ]
    assert not [path for path in found if "stitchfleet" in path or "ziglang" in path]


def test_no_image_holds_a_build_secret(images: Images) -> None:
    """Neither as a file, nor in what a command wrote down; nor those of the tests themselves, where this machine has none."""
    sources = [Path(word.partition("src=")[2]) for word in build._secrets() if "src=" in word]
    public = b"".join(path.read_bytes() for path in Path("/usr/share/ca-certificates/mozilla").glob("*.crt"))
    marks = {
        line for source in sources for line in source.read_bytes().splitlines() if len(line) > 50 and line not in public
    }
    ours = builder(print)
    for image in (ours.image(name) for name in build.NAMES if ours.is_built(name)):
        assert not [path for path in files(image) if path.startswith("run/secrets") or path == "etc/pip.conf"]
        whole = image.archive.read_bytes()
        assert not [mark for mark in [SECRET_MARK.encode(), *list(marks)[:20]] if mark in whole]


def test_a_changed_file_is_another_image_and_the_same_one_is_not_built_again(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = builder(lambda text: pytest.fail(text))
    assert ours.image("demo") == images.demo
    whole = build._context("demo")
    monkeypatch.setattr(build, "_context", lambda name: whole | {"train.py": b"print()"})
    assert not ours.is_built("demo")
    assert builder(print, base="other").is_built("demo") is False
    assert builder(print, trained_with="2.14.1").is_built("demo") is False
    assert builder(print, prebuilt=("2.14.1",)).is_built("payload") is False
    assert os.path.exists(images.demo.archive)


def test_what_a_killed_build_left_mounted_is_unmounted(tmp_path: Path) -> None:
    builder = Builder(tmp_path, print)
    layer = tmp_path / "storage" / "overlay" / "0 1" / "merged"
    layer.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(layer)], check=True)
    with builder._alone():
        assert not layer.is_mount()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(layer)], check=True)
    assert not layer.is_mount()
