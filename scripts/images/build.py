"""Builds the project's images with buildah, without a container engine or an image registry, and caches them by content.

An image's tag is a digest of its inputs: its Dockerfile, the files that it copies, and the base. An image whose archive exists is not
built again. If no base is given, debootstrap makes it. A private certificate authority and pip's configuration are passed as build
secrets, so that no layer contains them.
"""

from __future__ import annotations

import argparse
import configparser
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stitchfleet.plugin.versions.known import PREBUILT

from ..wheel import ROOT, WheelError, build_wheel, digest_of, sources

HERE = pathlib.Path(__file__).parent
NAMES = ("payload", "operator", "demo", "horovod", "postgres")
WITH_US = ("payload", "operator")
"""Images that contain stitchfleet. The others are made as a user would make them."""
SUITE = "bookworm"
BASE_PACKAGES = ("python3", "python3-venv", "ca-certificates")
WITH_TENSORFLOW = ("demo", "horovod")
TRAINED_WITH = "2.15.1"
"""The TensorFlow of the training images."""
EXTRAS = ("operator",)
"""Extras in setup.cfg that the operator's image installs."""
AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
"""Variables that may name a file of certificate authorities, including the machine's own."""
BUILD_SECONDS, SECONDS_PER_RELEASE = 1800, 600
"""Longest time of a program, and what is added to it for each release of TensorFlow that the payload is built for."""
KEPT_SECONDS = 6 * 3600.0
"""How long an older image of the same name is kept after its last use."""


class ImageError(Exception):
    """An image cannot be built. The message is one line; if a program failed, it names the log."""


@dataclass(frozen=True)
class Image:
    """reference: its name and tag. archive: a docker-archive file, which containerd imports."""

    reference: str
    archive: pathlib.Path


class Builder:
    """Builds images in a folder, which holds archives, logs, and buildah's storage with the layers that later builds use again."""

    def __init__(
        self,
        folder: pathlib.Path,
        tell: Callable[[str], None],
        base: str | None = None,
        prebuilt: Sequence[str] = PREBUILT,
        trained_with: str = TRAINED_WITH,
    ) -> None:
        """tell: prints a line for people. base: an image that buildah can pull; None: debootstrap makes one. prebuilt: the releases
        of TensorFlow for which the payload brings the op. trained_with: the release in the training images."""
        self.folder, self.tell, self._base = folder, tell, base
        self._prebuilt, self._trained_with = tuple(prebuilt), trained_with

    def image(self, name: str) -> Image:
        """The image `name`, one of NAMES; it is built if it does not exist. Raises ImageError."""
        image = self._image(name)
        if image.archive.exists():
            os.utime(image.archive)
            return image
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            if not image.archive.exists():
                self._build(name, image)
        return image

    def reference(self, name: str) -> str:
        """The name and tag of image `name`, one of NAMES, whether or not it is built."""
        return self._image(name).reference

    def push(self, name: str, registry: str) -> str:
        """Pushes an image, which is built if it does not exist, to a registry under the name that the chart uses. Returns that name.
        Credentials and connection are buildah's (`buildah login`, registries.conf). Raises ImageError."""
        image = self.image(name)
        target = f"{registry.rstrip('/')}/stitchfleet/{name}:{_version()}"
        with self._alone():
            try:
                self._buildah(name, "inspect", "--type", "image", image.reference)
            except ImageError:  # its layers were removed, its archive was kept
                self._buildah(name, "pull", f"docker-archive:{image.archive}")
            self.tell(f"pushing {target}")
            self._buildah(name, "push", image.reference, f"docker://{target}")
        return target

    def is_built(self, name: str) -> bool:
        """Whether image `name`, one of NAMES, exists for the present inputs."""
        return self._image(name).archive.exists()

    def _image(self, name: str) -> Image:
        inputs = _context(name)
        if name in WITH_US:
            inputs |= {f"source/{path}": content for path, content in sources().items()}
        tag = digest_of(inputs, f"{self._base or (SUITE, BASE_PACKAGES)} {self._arguments(name)}")
        return Image(f"localhost/stitchfleet-{name}:{tag}", self.folder / f"{name}-{tag}.tar")

    def _arguments(self, name: str) -> list[str]:
        """The build arguments of an image, but for BASE."""
        if name == "payload":
            return [f"TENSORFLOW_VERSIONS={' '.join(self._prebuilt)}"]
        return [f"TENSORFLOW_VERSION={self._trained_with}"] if name in WITH_TENSORFLOW else []

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                _unmount_below(self.folder / "storage")  # a build that was killed leaves its layers mounted
                yield
            finally:
                _unmount_below(self.folder / "storage")

    def _build(self, name: str, image: Image) -> None:
        base = self._base or self._made_base()
        self.tell(f"building the image {name}")
        with tempfile.TemporaryDirectory(prefix="stitchfleet-image-") as folder_name:
            folder = pathlib.Path(folder_name)
            for path, content in _context(name).items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod(0o755 if content.startswith(b"#!") else 0o644)
            if name in WITH_US:
                try:
                    build_wheel(folder / "wheel")
                except WheelError as error:
                    raise ImageError(str(error)) from None
            options = ["--isolation", "chroot", "--layers", "--tag", image.reference]
            for argument in (f"BASE={base}", *self._arguments(name)):
                options += ["--build-arg", argument]
            self._buildah(name, "build", *options, *_secrets(), str(folder))
        partial = image.archive.with_suffix(".part")
        partial.unlink(missing_ok=True)
        self._buildah(
            name, "push", "--disable-compression", image.reference, f"docker-archive:{partial}:{image.reference}"
        )
        self._forget_older(name, image)
        partial.rename(image.archive)

    def _forget_older(self, name: str, image: Image) -> None:
        """Removes builds that were not used for KEPT_SECONDS, with the layers that no other image has. So two checkouts of the
        project that are in use do not remove each other's builds."""
        oldest = time.time() - KEPT_SECONDS
        archives = list(self.folder.glob(f"{name}-*.tar"))
        kept = {archive.stem.removeprefix(f"{name}-") for archive in archives if archive.stat().st_mtime >= oldest}
        for archive in archives:
            if archive.stat().st_mtime < oldest:
                archive.unlink()
        repository, _, own = image.reference.rpartition(":")
        for reference in self._buildah(name, "images", "--format", "{{.Name}}:{{.Tag}}").split():
            if reference.startswith(f"{repository}:") and reference.rpartition(":")[2] not in {own, *kept}:
                with contextlib.suppress(ImageError):  # another build may use it just now
                    self._buildah(name, "rmi", reference)

    def _made_base(self) -> str:
        """The reference of a Debian image with Python, made by debootstrap from this machine's mirror."""
        tag = hashlib.sha256(f"{SUITE} {BASE_PACKAGES}".encode()).hexdigest()[:16]
        reference = f"localhost/stitchfleet-base:{tag}"
        with contextlib.suppress(ImageError):
            self._buildah("base", "inspect", "--type", "image", reference)
            return reference
        self.tell("making the base of the images with debootstrap: about a minute, once")
        root = self.folder / "base-root"
        shutil.rmtree(root, ignore_errors=True)
        try:
            options = ["--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"]
            self._run("base", ["debootstrap", *options, SUITE, str(root)])
            shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
            container = self._buildah("base", "from", "scratch").strip()
            self._buildah("base", "add", "-q", container, str(root), "/")
            self._buildah("base", "commit", "-q", "--rm", container, reference)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return reference

    def _buildah(self, log: str, *words: str) -> str:
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        return self._run(log, ["buildah", *storage, "--storage-driver", "overlay", *words])

    def _run(self, name: str, command: list[str]) -> str:
        """Runs a command and returns its standard output. Standard output and error also go to the image's log. Raises ImageError."""
        path = self.folder / f"{name}.log"
        with open(path, "ab") as log:
            try:
                done = subprocess.run(
                    ["nice", "-n", "5", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    timeout=BUILD_SECONDS + SECONDS_PER_RELEASE * len(self._prebuilt),
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise ImageError(f"{command[0]} for the image {name}: {error}") from None
            log.write(done.stdout)
        if done.returncode:
            ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
            raise ImageError(
                f"{command[0]} ended with {ended} for the image {name}; {path} says why, at its end: {_last_line(path)}"
            )
        return done.stdout.decode(errors="replace")


def _context(name: str) -> dict[str, bytes]:
    """Path in the build's context -> content. The wheel comes in addition."""
    found = {f"{path.relative_to(HERE / name)}": path.read_bytes() for path in _files(HERE / name)}
    if name == "payload":
        for path in _native_files():
            found[f"native/stitchfleet/{path.relative_to(ROOT)}"] = path.read_bytes()
        found["starter.S"] = (ROOT / "operator" / "policy" / "starter" / "starter.S").read_bytes()
    if name == "horovod":
        found["classifier.py"] = (HERE / "demo" / "modules" / "classifier.py").read_bytes()
    if name == "operator":
        found["requirements.txt"] = "\n".join(_requirements()).encode()
    return found


def _last_line(log: pathlib.Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "nothing")


def _unmount_below(folder: pathlib.Path) -> None:
    mounts = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    points = [pathlib.Path(line.split()[1].replace("\\040", " ")) for line in mounts]
    for point in sorted(points, key=lambda point: len(point.parts), reverse=True):
        if point.is_relative_to(folder):
            subprocess.run(["umount", "-l", str(point)], stderr=subprocess.DEVNULL, check=False)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _native_files() -> list[pathlib.Path]:
    """The sources of the TensorFlow op, and the files that build it."""
    plugin, compiler = ROOT / "plugin", ROOT / "compiler"
    toolchain = compiler / "toolchain"
    single = (
        *(plugin / "__init__.py", compiler / "__init__.py", compiler / "kernel" / "stitch_abi.h"),
        *(compiler / "targets" / "cuda_attributes.def", toolchain / "__init__.py", toolchain / "host.py"),
    )
    return [*single, *_files(plugin / "native")]


def _settings() -> configparser.ConfigParser:
    """setup.cfg."""
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found


def _version() -> str:
    """The project's version. It is the chart's appVersion, and the default tag of the images."""
    return _settings()["metadata"]["version"]


def _requirements() -> list[str]:
    """The packages of EXTRAS and of the extras that these include."""
    extras = _settings()["options.extras_require"]
    waiting, found = list(EXTRAS), set()
    while waiting:
        for line in extras[waiting.pop()].split("\n"):
            if line.startswith("stitchfleet["):
                waiting += line.removeprefix("stitchfleet[").rstrip("]").split(",")
            elif line:
                found.add(line)
    return sorted(found)


def _secrets() -> list[str]:
    """buildah's options for the secrets that this machine needs to reach a package index; empty if it needs none."""
    found = []
    authority = next((os.environ[name] for name in AUTHORITIES if os.environ.get(name)), None)
    if authority and os.path.exists(authority):
        found += ["--secret", f"id=ca,src={authority}"]
    settings = os.environ.get("PIP_CONFIG_FILE") or "/etc/pip.conf"
    if os.path.exists(settings):
        found += ["--secret", f"id=pip,src={settings}"]
    return found


def default_folder() -> pathlib.Path:
    """The folder in the user's cache in which images are built if none is named."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "stitchfleet-tests" / "images"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; default: all")
    parser.add_argument("--base", metavar="IMAGE", help="Debian image with Python 3.11; default: made by debootstrap")
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        default=default_folder(),
        help="folder of archives and layers; default %(default)s",
    )
    parser.add_argument(
        "--tensorflow",
        nargs="+",
        default=PREBUILT,
        metavar="RELEASE",
        help="releases of TensorFlow for which the payload brings the op, two minutes of building each; default: "
        f"{' '.join(PREBUILT)}",
    )
    parser.add_argument(
        "--push",
        metavar="REGISTRY",
        help="also push the images there, under the names that the chart uses with imageRegistry=REGISTRY; run "
        "`buildah login REGISTRY` first",
    )
    arguments = parser.parse_args()
    builder = Builder(
        arguments.folder, lambda text: print(text, file=sys.stderr), arguments.base, prebuilt=arguments.tensorflow
    )
    for name in arguments.names or NAMES:
        if name not in NAMES:
            parser.error(f"there is no image {name}; there are {', '.join(NAMES)}")
        try:
            image = builder.image(name)
            pushed = builder.push(name, arguments.push) if arguments.push else ""
        except ImageError as error:
            print(f"images: {error}", file=sys.stderr)
            return 1
        print(f"{pushed or image.reference}  {image.archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
