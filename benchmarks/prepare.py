"""Speed and memory of `andrea prepare`: against a plain `tokenizers` encode of the same text, and on huge sources.

    python benchmarks/prepare.py [GIGABYTES]      # the huge source, 10 by default; its shard needs twice that on disk

Each measurement is a process of its own; speeds are medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import median

ROUNDS = 3
MEGABYTES = 32
BYTES_FILE = 1 << 30


def texts() -> list[str]:
    """Real text of this machine: every Python file there is, up to MEGABYTES."""
    found, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        found.append(text)
        size += len(text.encode())
        if size > MEGABYTES << 20:
            break
    return found


def ours(source: str, run: str, tokenizer: str) -> float:
    """Seconds of a whole prepare: every pass over the source, encoding, digests, durable shards."""
    from andrea_corpus import bpe
    from andrea_corpus.prepare import prepare
    from andrea_corpus.tokenizer import ByteTokenizer
    from andrea_rundir.names import RunDir
    from andrea_rundir.policy import Policy

    policy = Policy.model_validate({"arms": {"a": {"path": source}}})
    chosen = bpe.given(Path(tokenizer)) if tokenizer else ByteTokenizer()
    began = time.monotonic()
    prepare(RunDir(Path(run)), policy, chosen, held_out=0.01, context=1024)
    return time.monotonic() - began


def plain(source: str, tokenizer: str) -> float:
    """Seconds of `encode_batch_fast` over the documents in memory, ids taken."""
    import tokenizers

    model = tokenizers.Tokenizer.from_file(tokenizer)
    documents = [json.loads(line)["text"] for line in Path(source).read_text(encoding="utf-8").splitlines()]
    began = time.monotonic()
    for encoding in model.encode_batch_fast(documents, add_special_tokens=False):
        _ = encoding.ids
    return time.monotonic() - began


def measured(what: str, *arguments: str) -> tuple[float, float]:
    """Seconds, and peak memory in MB, of one of the two above in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--only", what, *arguments], capture_output=True, check=True)
    seconds, kilobytes = map(float, done.stdout.split())
    return seconds, kilobytes / 1000


def against_plain(folder: Path) -> None:
    from andrea_corpus import bpe

    documents, source = texts(), folder / "text.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    size = sum(len(text.encode()) for text in documents)
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(bpe.learn(iter(documents[: len(documents) // 4]), 8449).exported(), encoding="utf-8")
    mine, theirs = [], []
    for i in range(ROUNDS):
        theirs.append(measured("plain", str(source), str(tokenizer))[0])
        mine.append(measured("ours", str(source), str(folder / f"bpe-{i}"), str(tokenizer))[0])
    print(f"bpe, {size / 1e6:.0f} MB of text in {len(documents)} documents:")
    print(f"  plain tokenizers encode_batch_fast  {size / 1e6 / median(theirs):8.1f} MB/s")
    print(f"  andrea prepare, all passes          {size / 1e6 / median(mine):8.1f} MB/s")
    print(f"  ratio                               {median(theirs) / median(mine):8.2f}   (at least 0.5 is asked for)")


def raw(source: str, target: str) -> float:
    """Seconds to write as many bytes as the shard has (two a byte of text) past the page cache: what the disk takes."""
    left, piece = 2 * Path(source).stat().st_size, mmap.mmap(-1, 16 << 20)
    began = time.monotonic()
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    while left > 0:
        left -= os.write(fd, piece)
    os.fsync(fd)
    os.close(fd)
    Path(target).unlink()
    return time.monotonic() - began


def bytes_speed(folder: Path) -> None:
    """On the disk, beside what the disk takes at all, and in memory, where the cores alone decide."""
    data = "".join(texts()).encode()[: 16 << 20]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        places = {"on disk": folder, "in memory": Path(name)}
        seconds: dict[str, list[float]] = {place: [] for place in (*places, "raw")}
        for path in places.values():
            with (path / "bytes.txt").open("wb") as file:
                while file.tell() < BYTES_FILE:
                    file.write(data)
        size = (folder / "bytes.txt").stat().st_size
        for _ in range(ROUNDS):
            for place, path in places.items():
                seconds[place].append(measured("ours", str(path / "bytes.txt"), str(path / "bytes"), "")[0])
                subprocess.run(["rm", "-r", path / "bytes"], check=True)
            seconds["raw"].append(measured("raw", str(folder / "bytes.txt"), str(folder / "raw"))[0])
        (folder / "bytes.txt").unlink()
    print(f"bytes, {size / 1e9:.2f} GB of text, its shard twice that; at least 200 MB/s of text are asked for:")
    for place in places:
        print(f"  andrea prepare, {place:<10} {size / 1e6 / median(seconds[place]):6.0f} MB/s")
    print(f"  the disk, for as many bytes {size / 1e6 / median(seconds['raw']):6.0f} MB/s")


def memory(folder: Path, gigabytes: float) -> None:
    sparse = folder / "sparse.txt"
    with sparse.open("wb") as file:
        file.truncate(int(gigabytes * 1e9))
    line = folder / "line.jsonl"
    with line.open("wb") as file:
        file.write(b'{"id": 1, "text": "')
        for _ in range(1000):
            file.write(b"one line without an end, caf\\u00e9 \\ud83d\\ude00 \xc3\xa9 " * 20_000)
        file.write(b'"}\n')
    for name, source in ((f"a sparse file of {gigabytes:g} GB", sparse), ("one line of JSON, 1 GB", line)):
        seconds, megabytes = measured("ours", str(source), str(folder / "big"), "")
        print(f"memory, {name}: {megabytes:.0f} MB at most, {seconds:.0f} s   (under 500 MB is asked for)", flush=True)
        subprocess.run(["rm", "-r", folder / "big"], check=True)
        source.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gigabytes", type=float, nargs="?", default=10.0)
    parser.add_argument("--only", nargs="*", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args()
    assert not rest
    if args.only:
        seconds = {"ours": ours, "plain": plain, "raw": raw}[args.only[0]](*args.only[1:])  # type: ignore[operator]
        # ru_maxrss would be that of the process that started us, if it was larger.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        print(seconds, int(status.partition("VmHWM:")[2].split()[0]) * 1.024)
        return 0
    with tempfile.TemporaryDirectory() as name:
        against_plain(Path(name))
        bytes_speed(Path(name))
        memory(Path(name), args.gigabytes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
