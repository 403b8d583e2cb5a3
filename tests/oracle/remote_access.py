"""Access to object stores: the order of credentials, options, permissions, other stores, and the disk cache.

    python3 remote_access.py [--only NAME]

What a request is signed with is seen by the proxy before the store. The last line is `N passed, N failed`.
"""

import argparse
import contextlib
import functools
import http.server
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from cloud_services import metadata_service, own_certificate, tunnel
from mount import binary, mounted, stats, unmount
from proxy import Proxy
from stores import Azurite, Moto, Rclone, Wrong, clean_environment, expect

SAMPLE = Path(__file__).resolve().parents[1] / "data/sample"
TESTS = []


def test(function):
    """Marks a test."""
    TESTS.append(function)
    return function


def run(*arguments, env, code=0, **options):
    """Runs the program: its stdout, and its other output."""
    done = subprocess.run([binary(), *map(str, arguments)], env=env, capture_output=True, timeout=120, stdin=subprocess.DEVNULL, **options)
    expect(done.returncode == code, f"{arguments}: exit code {done.returncode}: {done.stderr.decode()}")
    return done.stdout, done.stderr.decode()


def tree(point):
    """Every file below a mount, except those about the mount: its length and a digest."""
    found = {}
    for folder, folders, files in os.walk(point):
        folders[:] = sorted(name for name in folders if name != ".tiledbfs")
        for name in sorted(files):
            path = Path(folder, name)
            if not path.is_symlink():
                found[str(path.relative_to(point))] = path.stat().st_size, path.read_bytes()
    return found


class Stage:
    """What all tests share."""

    def __init__(self, moto, folder):
        self.moto, self.folder = moto, Path(folder)
        self.files = moto.load("access", "sample", SAMPLE)
        moto.load("public", "sample", SAMPLE, public=True)

    def keys_of(self, env, *options, source="s3://access/sample", proxy_options=None, **more):
        """The access keys that a listing of the source is signed with."""
        with Proxy(self.moto.host, **(proxy_options or {})) as proxy:
            given = clean_environment() | {"AWS_ENDPOINT_URL": proxy.url, "AWS_REGION": "us-east-1"} | env
            run("ls", *options, source, env={name: value for name, value in given.items() if value is not None}, **more)
            self.log = list(proxy.log)
            return {request.key for request in proxy.log}


# -- credentials ---------------------------------------------------------------------------------------------


def profile_files(stage):
    """Variables that name two files of profiles."""
    credentials, config = stage.folder / "credentials", stage.folder / "config"
    credentials.write_text("[default]\naws_access_key_id = of-default\naws_secret_access_key = hidden\n"
                           "[work]\naws_access_key_id = of-work\naws_secret_access_key = hidden\naws_session_token = token-of-work\n")
    config.write_text("[default]\nregion = us-west-2\n[profile work]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:9\n")
    return {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_CONFIG_FILE": str(config)}


@test
def the_order_of_credentials(stage):
    """Credentials from options, the environment, a profile, a container, the machine, and none."""
    files = profile_files(stage)
    keys = {"AWS_ACCESS_KEY_ID": "of-environment", "AWS_SECRET_ACCESS_KEY": "hidden"}
    token = stage.folder / "token"
    token.write_text("Bearer container")
    with metadata_service("of-machine") as (machine, asked), metadata_service("of-container") as (container, asked_container):
        at_machine = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": machine, "AWS_EC2_METADATA_DISABLED": None}
        in_container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": container + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
        everything = keys | files | in_container | at_machine
        public = "s3://public/sample"
        expect(stage.keys_of(everything, "--anonymous", source=public) == {None}, "`anonymous` is not first")
        with Proxy(stage.moto.host) as proxy:
            got = stage.keys_of(everything, "--profile", "work", "--endpoint-url", proxy.url)
            expect(not got, "the endpoint of the options is not first")
            expect({request.key for request in proxy.log} == {"of-work"}, "the profile of the options is not first")
            expect(all(r.headers.get("x-amz-security-token") == "token-of-work" for r in proxy.log), "no token")
        expect(stage.keys_of(everything) == {"of-environment"}, "keys in the environment")
        expect(stage.keys_of(files | in_container | at_machine | {"AWS_PROFILE": "work"}) == {"of-work"}, "AWS_PROFILE")
        expect(stage.keys_of(files | in_container | at_machine) == {"of-default"}, "the default profile")
        expect(stage.keys_of(in_container | at_machine) == {"of-container"}, "a container")
        expect(asked_container[-1][2] == "Bearer container", f"{asked_container}")
        expect(not asked, f"the machine was asked: {asked}")
        expect(stage.keys_of(at_machine) == {"of-machine"}, "the machine")
        count = len(asked)
        expect(stage.keys_of(at_machine | {"AWS_EC2_METADATA_DISABLED": "true"}, source=public) == {None}, "none")
        expect(len(asked) == count, "the machine was asked all the same")


@test
def a_web_identity(stage):
    """A token in a file is exchanged for credentials, only over HTTPS; also one of a profile, and with priority over those of a container."""
    certificate, context = own_certificate(stage.folder)
    token, config = stage.folder / "identity", stage.folder / "identity.config"
    token.write_text("hidden-token")
    config.write_text(f"[default]\nrole_arn = arn:aws:iam::1:role/b\nweb_identity_token_file = {token}\n")
    log = stage.folder / "identity.log"
    with metadata_service("of-role") as (service, asked), Proxy(service.split("//")[1], tls=context) as sts:
        given = {"AWS_ENDPOINT_URL_STS": sts.url, "AWS_CA_BUNDLE": certificate}
        by_environment = given | {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": "arn:aws:iam::1:role/a"}
        container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
        expect(stage.keys_of(by_environment | container) == {"of-role"}, "the environment's")
        expect(all("role%2Fa" in path and "hidden-token" in path for _, path, _ in asked) and asked, f"{asked}")
        env = stage.moto.env(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="") | by_environment
        with mounted("s3://access/sample", "-vv", "--log-file", log, env=env) as point:
            (point / "weather/schema.json").read_bytes()
        expect("hidden" not in log.read_text(), log.read_text())
        del asked[:]
        expect(stage.keys_of(given | {"AWS_CONFIG_FILE": str(config)}) == {"of-role"}, "the profile's")
        expect(all("role%2Fb" in path for _, path, _ in asked) and asked, f"{asked}")
        # Failures are reported soon: no service, no token, a service that does not know the token.
        sts.fault(403, kind="any", times=float("inf"))
        for more in ({"AWS_ENDPOINT_URL_STS": "https://127.0.0.1:9"}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent"}, {}):
            refused(stage, by_environment | more, "AWS_WEB_IDENTITY_TOKEN_FILE")


@test
def credentials_of_a_container(stage):
    """Unavailable credentials are reported soon."""
    token = stage.folder / "token"
    token.write_text("hidden")
    uri = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/container"}
    for more in ({"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}, {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nonexistent"}):
        refused(stage, uri | more, "AWS_CONTAINER_CREDENTIALS")


def refused(stage, env, *words, source="s3://access/sample", options=()):
    """A listing is refused within 10 s, in one line that contains the words."""
    given = clean_environment() | {"AWS_ENDPOINT_URL": f"http://{stage.moto.host}", "AWS_REGION": "us-east-1"} | env
    start = time.monotonic()
    env = {name: value for name, value in given.items() if value is not None}
    _, message = run("ls", *options, source, env=env, code=1)
    took = time.monotonic() - start
    expect(took < 10, f"{env}: it took {took:.1f} s: {message}")
    expect(message.count("\n") == 1 and all(word in message for word in words), f"{words}: {message}")
    expect("hidden" not in message, message)


@test
def a_machine_without_credentials_is_asked_once(stage):
    """A service that is there for a second."""
    with metadata_service("never", delay=20) as (machine, asked):
        start = time.monotonic()
        got = stage.keys_of({"AWS_EC2_METADATA_SERVICE_ENDPOINT": machine, "AWS_EC2_METADATA_DISABLED": None}, source="s3://public/sample")
        took = time.monotonic() - start
        expect(got == {None} and took < 5, f"{got} after {took:.1f} s")
        expect(len(asked) == 1, f"{asked}")


@test
def regions(stage):
    """Options, the environment, a profile."""
    files = profile_files(stage)

    def region(env, *options):
        stage.keys_of(files | env, *options)
        return {request.headers["authorization"].split("/")[2] for request in stage.log}

    expect(region({"AWS_REGION": "eu-north-1"}, "--region", "sa-east-1") == {"sa-east-1"}, "the option")
    expect(region({"AWS_REGION": "eu-north-1"}) == {"eu-north-1"}, "AWS_REGION")
    expect(region({"AWS_REGION": None, "AWS_DEFAULT_REGION": "eu-north-1"}) == {"eu-north-1"}, "AWS_DEFAULT_REGION")
    expect(region({"AWS_REGION": None}) == {"us-west-2"}, "the profile's")


@test
def other_options(stage):
    """Requester pays, host name, proxy, certificates."""
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden"}
    stage.keys_of(keys, "--requester-pays")
    expect(all(request.headers.get("x-amz-request-payer") == "requester" for request in stage.log), "nobody pays")
    # Through a proxy, no name is resolved: the request names the bucket's host.
    with Proxy(stage.moto.host) as proxy:
        proxy.fault(404, kind="any", times=float("inf"))
        env = clean_environment() | keys | {"AWS_REGION": "us-east-1", "HTTP_PROXY": proxy.url, "http_proxy": proxy.url}
        run("ls", "--virtual-hosted-style", "--endpoint-url", "http://store.invalid", "s3://access/sample", env=env, code=1)
        paths = {request.path.split("?")[0] for request in proxy.log}
        expect(paths == {"http://access.store.invalid/"}, f"{paths}")
        before = len(proxy.log)
        env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        run("ls", "--endpoint-url", f"http://{stage.moto.host}", "s3://access/sample", env=env)
        expect(len(proxy.log) == before, "NO_PROXY is passed over")


@test
def certificates(stage):
    """Certificates from the file are trusted, others are not."""
    certificate, context = own_certificate(stage.folder)
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden"}
    options = {"proxy_options": {"tls": context}}
    expect(stage.keys_of(keys, "--ca-bundle", certificate, **options) == {"k"}, "the option")
    expect(stage.keys_of(keys | {"AWS_CA_BUNDLE": certificate}, **options) == {"k"}, "AWS_CA_BUNDLE")
    expect(stage.keys_of(keys | {"SSL_CERT_FILE": certificate}, **options) == {"k"}, "SSL_CERT_FILE")
    start = time.monotonic()
    stage.keys_of(keys, code=1, **options)
    expect(time.monotonic() - start < 10, "an unknown certificate is found out late")


@test
def hosts_of_stores(stage):
    """`https://` URLs of Amazon and of R2 are S3, with host and region; the region of a bucket is requested; all through a proxy."""
    region = "eu-west-1"
    hosts = ["s3.us-east-1.amazonaws.com", "*.amazonaws.com", "*.s3.amazonaws.com", f"*.s3.{region}.amazonaws.com", f"s3.{region}.amazonaws.com", "*.r2.cloudflarestorage.com"]
    certificate, context = own_certificate(stage.folder, hosts)
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_CA_BUNDLE": certificate}
    wanted, _ = run("ls", SAMPLE, env=clean_environment())
    with Proxy(stage.moto.host, tls=context) as proxy, tunnel(proxy.port) as (url, asked):
        env = clean_environment() | keys | {"HTTPS_PROXY": url}
        for source, host, signed_for in (
            (f"https://access.s3.{region}.amazonaws.com/sample", f"access.s3.{region}.amazonaws.com:443", region),
            (f"https://s3.{region}.amazonaws.com/access/sample", f"s3.{region}.amazonaws.com:443", region),
            # moto takes the first part of an unknown host's name for a bucket, which does not exist.
            ("https://account.r2.cloudflarestorage.com/access/sample", "account.r2.cloudflarestorage.com:443", "auto"),
        ):
            del asked[:], proxy.log[:]
            got, _ = run("ls", source, env=env, code=int(signed_for == "auto"))
            expect(got == (b"" if signed_for == "auto" else wanted), f"{source}: {got}")
            expect(signed_for != "auto" or proxy.log[0].path.startswith("/access?"), f"{proxy.log}")
            expect(set(asked) == {host}, f"{source}: {asked}")
            regions = {request.headers["authorization"].split("/")[2] for request in proxy.log}
            expect(regions == {signed_for}, f"{source}: {regions}")
        # The region is requested once, without credentials.
        del asked[:], proxy.log[:]
        got, _ = run("ls", "s3://access/sample", env=env)
        expect(got == wanted, f"{got}")
        first = proxy.log[0]
        expect((first.method, first.key, asked[0]) == ("HEAD", None, "access.s3.amazonaws.com:443"), f"{first} {asked}")
        expect(asked[-1] == "s3.us-east-1.amazonaws.com:443", f"{asked}")
        proxy.fault(404, kind="head", times=float("inf"))
        refused(stage, env | {"AWS_REGION": None, "AWS_ENDPOINT_URL": None}, "not found", "bucket")
        proxy.clear()
        proxy.fault("late", kind="head", times=float("inf"))
        refused(stage, env | {"AWS_REGION": None, "AWS_ENDPOINT_URL": None}, "AWS_REGION")
    # Nothing listens at the proxy.
    refused(stage, keys | {"AWS_ENDPOINT_URL": None, "HTTPS_PROXY": "http://127.0.0.1:9"})


@test
def secrets_are_told_nobody(stage):
    """Secrets are not in the table of mounts, arguments, logs, counters or errors; a URL with one is refused."""
    log = stage.folder / "log"
    env = stage.moto.env()
    with mounted("s3://access/sample", "-vv", "--log-file", log, env=env) as point:
        tree(point)
        line = next(one for one in Path("/proc/mounts").read_text().splitlines() if str(point) in one)
        expect(line.startswith("s3://access/sample "), line)
        told = [line, log.read_text()] + [(point / ".tiledbfs" / name).read_text() for name in ("stats.json", "errors.jsonl", "work.json")]
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                text = process.read_bytes()
                told += [text.decode(errors="replace")] if str(point).encode() in text else []
        expect(len(told) > 5, "the process was not found")
        expect(not any("hidden" in text for text in told), "a secret is told")
    for url in ("s3://key:hidden@access/sample", "https://example.com/a?sig=hidden", "s3://access/sample?hidden"):
        _, message = run("mount", url, stage.folder, env=env, code=1)
        expect("hidden" not in message and "by the environment" in message, message)
    run("ls", "s3://access/sample", "--endpoint-url", "http://user:hidden@127.0.0.1:1", env=env, code=2)


# -- commands ------------------------------------------------------------------------------------------------


@test
def the_same_tree(stage):
    """Names, lengths and contents in a mount are those in a mount of the files."""
    with mounted(SAMPLE) as local, mounted("s3://access/sample", env=stage.moto.env()) as remote:
        wanted, got = tree(local), tree(remote)
        expect(len(wanted) > 100, f"{len(wanted)} files")
        differ = [name for name in wanted.keys() | got.keys() if wanted.get(name) != got.get(name)]
        expect(not differ, f"{len(differ)} files differ: {sorted(differ)[:5]}")
        # The times of fragments are in their names; other files have the times of their objects.
        for name in (name for name in wanted if "/fragments/" in name):
            expect((local / name).stat().st_mtime == (remote / name).stat().st_mtime, f"the time of {name}")


@test
def the_same_times(stage):
    """Files and directories without a time in their names have the time of their objects; the reference is a directory with one time for all."""
    copy, seconds = stage.folder / "copy", 1_234_567_890
    shutil.copytree(SAMPLE, copy)
    for folder, _, files in os.walk(copy):
        for name in ["", *files]:
            os.utime(Path(folder, name), (seconds, seconds))
    stage.moto.load("access", "dated", SAMPLE)
    stage.moto.date("access", "dated/", seconds)
    with mounted(copy) as local, mounted("s3://access/dated", env=stage.moto.env()) as remote:
        wanted, got = times(local), times(remote)
        differ = sorted(name for name in wanted.keys() | got.keys() if wanted.get(name) != got.get(name))
        expect(not differ, f"{len(differ)} times differ: {[(name, wanted.get(name), got.get(name)) for name in differ[:5]]}")
        expect(seconds in wanted.values() and len(set(wanted.values())) > 3, f"{set(wanted.values())}")


def times(point):
    """The modification times of all files and directories below a mount, in seconds, except those about the mount."""
    found = {}
    for folder, folders, files in os.walk(point):
        folders[:] = sorted(name for name in folders if name != ".tiledbfs")
        for name in ["", *files]:
            path = Path(folder, name)
            found[str(path.relative_to(point))] = path.lstat().st_mtime
    return found


@test
def commands(stage):
    """`ls`, `cat`, `cp`, `info` and `check` print the same for a URL as for a directory."""
    env = stage.moto.env()
    url, local = "s3://access/sample", str(SAMPLE)
    for arguments in (["ls", "@"], ["ls", "-R", "@"], ["ls", "@/weather/fragments"], ["ls", "@", "weather/fragments"], ["cat", "@/weather/schema.json"],
                      ["cat", "@", "weather/schema.json", "weather/metadata.json"], ["cat", "@/weather/fragments/*/footer.json"],
                      ["cat", "@/weather/data/columns/temperature/data.npy"], ["ls", "-d", "@/*"],
                      ["cat", "@/weather/schema.json", "@/weather/fragments.json"], ["ls", "--at", "2025-02-04", "@"]):
        wanted, _ = run(*[one.replace("@", local) for one in arguments], env=env)
        got, _ = run(*[one.replace("@", url) for one in arguments], env=env)
        expect(got.replace(url.encode(), local.encode()) == wanted, f"{arguments}: {got[:300]}")
    for name in ("", "/weather"):
        wanted, got = run("info", local + name, env=env)[0], run("info", url + name, env=env)[0]
        expect(got.replace(url.encode(), local.encode()) == wanted, f"info: {got.decode()}")
    out, _ = run("check", url, "--json", env=env)
    expect(out == run("check", local, "--json", env=env)[0].replace(local.encode(), url.encode()), "check")
    for source, name in ((local, "one"), (url, "two")):
        run("cp", "-r", f"{source}/weather/schemas", stage.folder / name, env=env)
    same = subprocess.run(["diff", "-r", stage.folder / "one", stage.folder / "two"], capture_output=True, text=True)
    expect(same.returncode == 0, same.stdout)
    for missing in (f"{url}/weather/nothing", f"{url}/nothing", "s3://access/nothing/at/all"):
        _, message = run("cat", missing, env=env, code=1)
        expect(missing in message, message)


@test
def members_of_groups(stage):
    """Members below the same prefix by their URIs; others if links are followed, also in a cycle."""
    import tiledb

    ctx = tiledb.Ctx(stage.moto.tiledb())
    stage.moto.bucket("members")
    stage.moto.load("members", "group/inside", SAMPLE / "weather")
    stage.moto.load("members", "other/place", SAMPLE / "weather")
    for name in ("group", "other/group"):
        tiledb.Group.create(f"s3://members/{name}", ctx=ctx)
    with tiledb.Group("s3://members/group", "w", ctx=ctx) as group:
        group.add("s3://members/group/inside", name="inside")
        group.add("s3://members/other/place", name="elsewhere")
        group.add("s3://members/other/group", name="far")
    with tiledb.Group("s3://members/other/group", "w", ctx=ctx) as group:
        group.add("s3://members/group", name="back")
        group.add("s3://members/other/place", name="near")
    env = stage.moto.env()
    wanted = run("cat", SAMPLE, "weather/schema.json", env=env)[0]
    listed, _ = run("ls", "s3://members/group", env=env)
    expect(sorted(listed.split()) == [b"group.json", b"inside", b"metadata.json"], f"{listed}")
    listed, warnings = run("ls", "s3://members/group", "--follow-members", env=env)
    expect(sorted(listed.split()) == [b"elsewhere", b"far", b"group.json", b"inside", b"metadata.json"], f"{listed}")
    expect("s3://members/other/place: following a group member that lies outside" in warnings, warnings)
    for name in ("inside", "elsewhere", "far/near"):
        got, _ = run("cat", "s3://members/group", f"{name}/schema.json", "--follow-members", env=env)
        expect(got == wanted, name)
    out, _ = run("ls", "s3://members/group", "far", "--follow-members", env=env)
    expect(b"near" in out and b"back" not in out, f"{out}")
    with mounted("s3://members/group", "-o", "follow_members", env=env) as point:
        expect(tree(point / "elsewhere") == tree(point / "inside"), "the trees differ")
    run("check", "s3://members/group", "--follow-members", env=env)


@test
def from_fstab(stage):
    """A mount as mount(8) calls it."""
    point = stage.folder / "fstab"
    point.mkdir()
    env = clean_environment()
    env["PATH"] = os.environ["PATH"]
    helper = stage.folder / "mount.tiledbfs"
    helper.symlink_to(binary())
    options = f"rw,_netdev,nofail,endpoint_url=http://{stage.moto.host},region=us-east-1,anonymous,refresh=5,threads=8,cache_size=64M,noexec,dev,suid"
    done = subprocess.run([helper, "s3://public/sample", point, "-o", options], env=env, capture_output=True, text=True, timeout=60)
    try:
        expect(done.returncode == 0, done.stderr)
        expect(tree(point).keys(), "nothing is there")
    finally:
        unmount(point)


@test
def who_may_read(stage):
    """With credentials nobody else has access; without credentials everybody, restricted by a umask."""
    if os.getuid():
        print("who_may_read: not as root, so others cannot be tried")
        return

    def modes(source, *options, env):
        with mounted(source, "-o", "allow_other", *options, env=env) as point:
            os.chmod(point.parent, 0o755)
            file = point / "weather/schema.json"
            as_nobody = subprocess.run(["cat", file], user=pwd.getpwnam("nobody").pw_uid, group=65534, extra_groups=[], capture_output=True, check=False)
            return oct(file.stat().st_mode & 0o777), oct((point / "weather").stat().st_mode & 0o777), as_nobody.returncode == 0

    keys = stage.moto.env()
    expect(modes("s3://access/sample", env=keys) == ("0o400", "0o500", False), "with credentials")
    expect(modes("s3://public/sample", "-o", "anonymous", env=keys) == ("0o444", "0o555", True), "without")
    expect(modes("s3://access/sample", "-o", "umask=022", env=keys) == ("0o444", "0o555", True), "with a umask")
    expect(modes("s3://access/sample", "-o", "umask=077", env=keys) == ("0o400", "0o500", False), "with a umask of 077")
    point = stage.folder / "umask"
    point.mkdir()
    run("mount", "s3://access/sample", point, "-o", "umask=022", env=keys, code=2)
    run("mount", SAMPLE, point, "-o", "umask=022,allow_other", env=keys, code=2)


# -- the cache on a disk -------------------------------------------------------------------------------------


@test
def a_second_mount_reads_from_the_disk(stage):
    """A second mount makes only one listing request; damaged files are fetched again, and reported."""
    folder, log = stage.folder / "parts", stage.folder / "parts.log"
    options = ["--disk-cache", folder, "--log-file", log]

    def read():
        with Proxy(stage.moto.host) as proxy, mounted("s3://access/sample", *options, env=stage.moto.env(proxy.host)) as point:
            return tree(point), proxy.snapshot(), stats(point)

    first, counts, _ = read()
    expect(counts.get > 10, f"{counts}")
    parts = [path for path in folder.glob("*/??/*") if path.is_file()]
    expect(len(parts) > 10 and all(path.stat().st_mode & 0o077 == 0 for path in parts), f"{len(parts)} parts")
    again, counts, told = read()
    expect(again == first, "it is another tree")
    expect((counts.get, counts.head, counts.list) == (0, 0, 1), f"{counts}")
    expect(told["get_requests"] == 0, f"{told}")
    chosen = random.Random(1).sample(parts, 3)
    for path, damage in zip(chosen, (b"", b"x" * 40, None)):
        path.write_bytes(path.read_bytes()[:-1] + b"~" if damage is None else damage)
    again, counts, _ = read()
    expect(again == first, "it is another tree after damage")
    expect(1 <= counts.get <= 3, f"{counts}")
    expect(log.read_text().count("is fetched again") == 3, log.read_text())
    # Other objects under the same names have other ETags.
    stage.moto.load("access", "sample2", SAMPLE)
    expect(read()[1].get == 0, "whole again")


@test
def mounts_share_parts_and_may_be_killed(stage):
    """Two mounts write at the same time and one is killed; the rest is right and bounded."""
    folder = stage.folder / "shared"
    options = ["--disk-cache", folder, "--disk-cache-size", "200K"]
    env = stage.moto.env()
    with mounted(SAMPLE) as point:
        wanted = tree(point)
    for _ in range(2):
        with tempfile.TemporaryDirectory() as other:
            killed = subprocess.Popen([binary(), "mount", "-f", "s3://access/sample", other, *options], env=env, stderr=subprocess.DEVNULL)
            with mounted("s3://access/sample", *options, env=env) as point:
                end = time.monotonic() + 20
                while not os.path.ismount(other) and time.monotonic() < end:
                    time.sleep(0.05)
                reader = threading.Thread(target=lambda: contextlib.suppress(OSError).__enter__() or walk_quietly(other))
                reader.start()
                time.sleep(0.3)
                killed.send_signal(signal.SIGKILL)
                killed.wait()
                expect(tree(point) == wanted, "the tree is wrong")
                reader.join()
            unmount(other)
        total = sum(path.stat().st_size for path in folder.glob("*/??/*"))
        expect(0 < total <= 200 << 10, f"{total} bytes")


def walk_quietly(point):
    """Reads files until the mount is gone."""
    with contextlib.suppress(OSError):
        tree(point)


@contextlib.contextmanager
def small_disk(folder, *options):
    """A disk of its own in a folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(("mode=700", *options)), "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@test
def a_disk_that_cannot_be_written(stage):
    """A directory that is missing, read-only, full or another user's is a warning, and everything is right without it."""
    env = stage.moto.env()
    with mounted("s3://access/sample", env=env) as point:
        wanted = tree(point)
    shared = stage.folder / "shared"
    (shared / "tiledbfs-parts-1").mkdir(parents=True, mode=0o777)
    with small_disk(stage.folder / "read-only", "ro") as read_only, small_disk(stage.folder / "full", "size=64k") as full:
        with contextlib.suppress(OSError), open(full / "fill", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        for folder in ("/proc/nothing", read_only, full, shared):
            listed, message = run("ls", "s3://access/sample", "--disk-cache", folder, env=env)
            expect(listed and f"tiledbfs: warning: {folder}" in message and message.count("\n") == 1, f"{listed}: {message}")
            with mounted("s3://access/sample", "--disk-cache", folder, env=env) as point:
                expect(tree(point) == wanted, f"{folder}: another tree")
    # Full after a while.
    log = stage.folder / "full.log"
    with small_disk(stage.folder / "filling", "size=256k") as folder:
        with mounted("s3://access/sample", "--disk-cache", folder, "--log-file", log, env=env) as point:
            expect(tree(point) == wanted, "another tree when it is full")
    expect("disk cache cannot be written" in log.read_text(), log.read_text())


@test
def options_for_other_sources(stage):
    """Options that do nothing for a source say so."""
    env = stage.moto.env()
    for arguments in (["ls", "s3://access/sample"], ["mount", "s3://access/sample", stage.folder / "idle"]):
        (stage.folder / "idle").mkdir(exist_ok=True)
        try:
            _, message = run(*arguments, "--follow-symlinks", env=env)
        finally:
            unmount(stage.folder / "idle")
        expect("--follow-symlinks does nothing" in message, message)


# -- other stores --------------------------------------------------------------------------------------------


@test
def google_cloud_storage(stage):
    """`gs://`, on a public bucket of moto, whose listings and objects are those of Google's XML interface."""
    env = clean_environment() | {"GOOGLE_BASE_URL": f"http://{stage.moto.host}", "GOOGLE_SKIP_SIGNATURE": "true"}
    compare(stage, "gs://public/sample", env=env)
    run("ls", "gs://public/sample", "--anonymous", "--endpoint-url", f"http://{stage.moto.host}", env=clean_environment())
    run("ls", "gs://public/sample", "--region", "us-east-1", env=env, code=1)


def compare(stage, url, *options, env):
    """The tree of a URL is that of the sample."""
    with mounted(SAMPLE) as local, mounted(url, *options, env=env) as remote:
        wanted, got = tree(local), tree(remote)
        differ = sorted(name for name in wanted.keys() | got.keys() if wanted.get(name) != got.get(name))
        expect(not differ, f"{url}: {len(differ)} files differ: {differ[:5]}")


@test
def azure(stage):
    """`az://` on azurite, if installed: TILEDBFS_AZURITE names its program. TileDB itself writes an array there."""
    program = os.environ.get("TILEDBFS_AZURITE")
    if not program:
        print("azure: not run: TILEDBFS_AZURITE is not set")
        return
    import numpy as np
    import tiledb

    with Azurite(program) as azurite:
        ctx = tiledb.Ctx(azurite.tiledb())
        vfs = tiledb.VFS(ctx=ctx)
        vfs.create_bucket("azure://access")
        for path in SAMPLE.rglob("*"):
            if path.is_file():
                with vfs.open(f"azure://access/sample/{path.relative_to(SAMPLE)}", "wb") as file:
                    file.write(path.read_bytes())
        compare(stage, "az://access/sample", env=azurite.env())
        tiledb.from_numpy("azure://access/array", np.arange(1000), ctx=ctx)
        out, _ = run("cat", "az://access/array/data/columns/__attr/data.bin", env=azurite.env())
        expect(out == np.arange(1000).tobytes(), "the array is wrong")
        _, message = run("ls", "az://access/nothing", env=azurite.env(), code=1)
        expect("not found" in message, message)
        # By Azure's names for the account, which TileDB and Hadoop use, too.
        host = f"{azurite.ACCOUNT}.blob.core.windows.net"
        certificate, context = own_certificate(stage.folder, [host])
        with Proxy(azurite.host, tls=context) as proxy, tunnel(proxy.port) as (url, asked):
            env = clean_environment() | {"AZURE_STORAGE_KEY": azurite.KEY, "HTTPS_PROXY": url, "AWS_CA_BUNDLE": certificate}
            wanted, _ = run("ls", SAMPLE, env=env)
            for source in (f"abfss://access@{azurite.ACCOUNT}.dfs.core.windows.net/sample", f"https://{host}/access/sample"):
                got, _ = run("ls", source, env=env)
                expect(got == wanted, f"{source}: {got}")
            expect(set(asked) == {f"{host}:443"}, f"{asked}")
            refused(stage, env | {"AZURE_STORAGE_KEY": "aGlkZGVu"}, "credentials", source=f"https://{host}/access/sample")
        # No account, then no such container.
        _, message = run("ls", "az://access/sample", env=clean_environment(), code=1)
        expect("AZURE_STORAGE_ACCOUNT" in message, message)
        _, message = run("ls", "az://nothing/sample", env=azurite.env(), code=1)
        expect("not found" in message, message)


@test
def web_servers(stage):
    """`http://` by WebDAV on rclone, if installed."""
    if not shutil.which("rclone"):
        print("web_servers: not run: there is no rclone")
        return
    with Rclone(SAMPLE) as server:
        compare(stage, f"http://{server.host}/", env=clean_environment())
        _, message = run("mount", f"http://{server.host}/nothing", stage.folder, env=clean_environment(), code=1)
        expect("not found" in message, message)
        certificate, context = own_certificate(stage.folder)
        with Proxy(server.host, tls=context) as proxy:
            run("ls", proxy.url, "--ca-bundle", certificate, env=clean_environment())
            refused(stage, {}, "certificate", source=proxy.url)


@test
def a_web_server_that_does_not_list(stage):
    """A server without WebDAV is reported as such, whatever it answers."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        status = 501

        def do_PROPFIND(self):
            if self.status == 200:
                self.do_GET()
            else:
                self.send_error(self.status)

        def log_message(self, *_):
            """Nothing."""

    handler = functools.partial(Handler, directory=str(SAMPLE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for Handler.status in (501, 405, 400, 200):
            refused(stage, {}, "WebDAV", source=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()


def main():
    """All tests."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only")
    args = parser.parse_args()
    passed = failed = 0
    with Moto() as moto:
        for one in TESTS:
            if args.only and args.only not in one.__name__:
                continue
            start, why = time.monotonic(), None
            with tempfile.TemporaryDirectory(prefix="tiledbfs-access-") as folder:
                try:
                    one(Stage(moto, folder))
                except (Wrong, SystemExit) as error:
                    why = str(error)
                except Exception:  # noqa: BLE001 - one test must not end the others
                    why = traceback.format_exc()
            print(f"{'FAIL' if why else 'ok  '} {one.__name__} ({time.monotonic() - start:.1f} s){': ' + why if why else ''}", flush=True)
            passed += not why
            failed += bool(why)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
