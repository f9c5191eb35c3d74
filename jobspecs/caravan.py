"""Caravan, from inside a task: who am I, how far am I, is a checkpoint wanted?

Copy this one file beside your training script; it needs Python 3.8 and nothing
else. It works under the task driver `caravan` and after `caravan join`, and does
no harm without either: then the gang has one member, and reports go nowhere.

    import caravan

    gang = caravan.Gang()
    me = gang.member                         # me.rank, me.world_size, me.master_addr, ...
    for step in range(start, steps):
        loss = train_one_step()
        gang.report(step=step, loss=loss, throughput=samples_per_second)
        if gang.should_checkpoint() or step % 100 == 0:
            with gang.checkpoint("ckpt/step-%d" % step, step=step) as path:
                torch.save(model.state_dict(), path)

Nothing here raises because nobody listens: training goes on without Caravan.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
import time
import urllib.request

__all__ = ["Gang", "Member"]


class Member:
    """The part that this task has in its gang.

    rank is the first of the task's global ranks and local_world_size how many it
    has, one for each of its processes: ranks lists them. node_rank is the task's
    place among the nnodes members. members are the entries of the membership
    file, in the order of node ranks; it is empty where there is no such file.
    """

    def __init__(self, rank, world_size, local_world_size, node_rank, nnodes, master_addr, master_port, epoch, generation, members=(), least=None, most=None):
        self.rank = rank
        self.world_size = world_size
        self.local_world_size = local_world_size
        self.node_rank = node_rank
        self.nnodes = nnodes
        self.master_addr = master_addr
        self.master_port = master_port
        self.epoch = epoch
        self.generation = generation
        self.members = list(members)
        self.min_nodes = nnodes if least is None else least
        self.max_nodes = nnodes if most is None else most

    @property
    def ranks(self):
        """All global ranks of this task."""
        return list(range(self.rank, self.rank + self.local_world_size))

    @property
    def address(self):
        """The address that the others reach this task by."""
        return self.members[self.node_rank]["address"] if self.members else None

    @classmethod
    def from_env(cls, env=None):
        """The member as the environment describes it: alone where it does not."""
        env = os.environ if env is None else env
        number = lambda key, otherwise: int(env.get(key) or otherwise)
        return cls(
            rank=number("RANK", 0), world_size=number("WORLD_SIZE", 1), local_world_size=number("LOCAL_WORLD_SIZE", 1),
            node_rank=number("NODE_RANK", 0), nnodes=number("NNODES", 1),
            master_addr=env.get("MASTER_ADDR") or "127.0.0.1", master_port=number("MASTER_PORT", 29500),
            epoch=env.get("CARAVAN_EPOCH", ""), generation=number("CARAVAN_GENERATION", 0))

    @classmethod
    def from_file(cls, path, alloc):
        """The member of an allocation in a membership file; None if it is not in it."""
        with open(path, encoding="utf-8") as f:
            m = json.load(f)
        rank = 0
        for place, member in enumerate(m["members"]):
            if member["alloc"] == alloc:
                return cls(
                    rank=rank, world_size=sum(x["processes"] for x in m["members"]), local_world_size=member["processes"],
                    node_rank=place, nnodes=len(m["members"]), master_addr=m["master_addr"], master_port=m["master_port"],
                    epoch=m["epoch"], generation=m["generation"], members=m["members"], least=m["min"], most=m["max"])
            rank += member["processes"]
        return None


class Gang:
    """This task's line to Caravan.

    checkpoint_signal and resize_signal are those of the task's configuration, as
    names or numbers; None for one that is not used. Signals only set a mark:
    on_resize(new, old) is called inside report(), should_checkpoint() and
    resized(), where the loop is between two steps.

    Make it in the main thread, because only there Python lets signals be caught.
    """

    def __init__(self, checkpoint_signal="SIGUSR1", resize_signal="SIGHUP", on_resize=None, env=None):
        self._env = os.environ if env is None else env
        self._lock = threading.Lock()
        self._conn = None
        self._retry_at = 0.0
        self._wanted = False
        self._stamp = None
        self._told_by_signal = False
        self._looked_at = 0.0
        self.on_resize = on_resize
        self.member = Member.from_env(self._env)
        self._read_membership()
        for sig, handler in ((checkpoint_signal, self._on_checkpoint), (resize_signal, self._on_resize)):
            if sig is not None and threading.current_thread() is threading.main_thread():
                signal.signal(getattr(signal, sig) if isinstance(sig, str) else sig, handler)

    def _on_checkpoint(self, *_):
        self._wanted = True

    def _on_resize(self, *_):
        self._told_by_signal = True

    # Membership.

    def _read_membership(self):
        """Reads the membership file if it was replaced; says whether it has news."""
        path = self._env.get("CARAVAN_MEMBERSHIP")
        if not path:
            return False
        try:
            info = os.stat(path)
            stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
            if stamp == self._stamp:
                return False
            new = Member.from_file(path, self._env.get("NOMAD_ALLOC_ID", ""))
        except (OSError, ValueError, KeyError, TypeError):
            return False  # it is replaced as a whole, so the next look is better
        self._stamp = stamp
        # A member that is not in it any more is about to be stopped.
        if new is None or (new.epoch, new.generation) == (self.member.epoch, self.member.generation) and self.member.members:
            return False
        changed = new.epoch != self.member.epoch or new.generation != self.member.generation
        self.member = new
        return changed

    def resized(self):
        """True if the gang has another size since the last call; member is new then.

        It costs next to nothing: the file is looked at after a signal, and once
        a second otherwise.
        """
        now = time.monotonic()
        if not self._told_by_signal and now - self._looked_at < 1.0:
            return False
        self._told_by_signal, self._looked_at = False, now
        old = self.member
        if not self._read_membership():
            return False
        if self.on_resize is not None:
            self.on_resize(self.member, old)
        return True

    # Checkpoints.

    def should_checkpoint(self):
        """True once after the checkpoint signal: make one now, a stop waits for it."""
        if self.on_resize is not None:
            self.resized()
        wanted, self._wanted = self._wanted, False
        return wanted

    @contextlib.contextmanager
    def checkpoint(self, path, step=None):
        """Makes a checkpoint, a file or a directory, whole or not at all.

        Write to the path that it gives, which does not exist yet. After the block
        that is on the disk under its real name, in place of what was there, and
        Caravan knows of it. If the block raises, nothing has happened.
        """
        path = os.path.abspath(path)
        parent = os.path.dirname(path)
        os.makedirs(parent, exist_ok=True)
        draft = os.path.join(parent, ".%s.%d.tmp" % (os.path.basename(path), os.getpid()))
        _remove(draft)
        try:
            yield draft
            _sync_tree(draft)
            _replace(draft, path)
            _sync(parent)
        except BaseException:
            _remove(draft)
            raise
        self.completed(path, step)

    def completed(self, path=None, step=None):
        """Tells of a checkpoint that is complete, for instance another member's."""
        about = {}
        if step is not None:
            about["step"] = int(step)
        if path is not None:
            about["path"] = os.path.abspath(path)
        self._tell({"checkpoint": about})

    # Reports.

    def report(self, step=None, loss=None, throughput=None, batch=None, noise_scale=None, fetch_s=None, prepare_s=None, compute_s=None):
        """Tells how far training is. Values that are left out stay as they were.

        throughput is the samples per second of this task or, where one task alone
        tells it, of the gang. batch is the samples of all in a step, noise_scale the
        gradient noise scale; fetch_s, prepare_s and compute_s are the seconds of a
        step that this task takes to read its input, prepare it, and work with it.
        """
        if self.on_resize is not None:
            self.resized()
        about = {}
        if step is not None:
            about["step"] = int(step)
        if loss is not None:
            loss = float(loss)
            about["loss"] = loss if loss - loss == 0 else str(loss)  # JSON has no NaN
        amounts = dict(throughput=throughput, batch=batch, noise_scale=noise_scale, fetch_s=fetch_s, prepare_s=prepare_s, compute_s=compute_s)
        about.update((key, float(value)) for key, value in amounts.items() if value is not None)
        if about:
            self._tell(about)

    def _tell(self, about):
        line = json.dumps(about)
        with self._lock:
            if time.monotonic() < self._retry_at:
                return
            try:
                self._send(line)
            except (OSError, ValueError):
                self._close()
                try:  # the other side may have started anew
                    self._send(line)
                except (OSError, ValueError):
                    self._close()
                    self._retry_at = time.monotonic() + 1.0

    def _send(self, line):
        path, url = self._env.get("CARAVAN_SOCKET"), self._env.get("CARAVAN_HTTP")
        if path:
            if self._conn is None:
                conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                conn.settimeout(1.0)
                try:
                    conn.connect(path)
                except BaseException:
                    conn.close()
                    raise
                self._conn = conn
            self._conn.sendall(line.encode() + b"\n")
        elif url:
            request = urllib.request.Request(url + "/v1/progress", line.encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=1.0).close()

    def _close(self):
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def close(self):
        """Lets go of the connection; the next report makes another."""
        with self._lock:
            self._close()


def _remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def _replace(draft, path):
    """Puts the draft in the place of path. Only over a directory that has
    something in it this takes two steps, between which there is nothing."""
    try:
        os.replace(draft, path)
    except OSError:
        if not os.path.lexists(path) or not os.path.lexists(draft):
            raise
        aside = draft + ".old.tmp"
        _remove(aside)
        os.rename(path, aside)
        os.rename(draft, path)
        _remove(aside)


def _sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_tree(path):
    if os.path.isdir(path):
        for entry in os.scandir(path):
            if not entry.is_symlink():
                _sync_tree(entry.path)
    _sync(path)
