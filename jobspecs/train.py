"""A small training loop on many nodes, with nothing but Python.

It trains a network with one hidden layer, data-parallel: every rank computes
the gradient of its share of the samples, and a ring all-reduce over TCP adds
them up. It is no way to train, but all that a gang needs is in it and is real:

  - the ranks meet at MASTER_ADDR:MASTER_PORT;
  - a checkpoint is made now and then, and at once when one is asked for, by all
    ranks at the same step;
  - a run that starts again goes on from the newest checkpoint, and with as many
    ranks ends with the same weights, bit for bit, as one that was never stopped;
  - when the gang changes its size, the members that stay go on without a
    restart, and new ones get the weights from them.

    python3 train.py --dir /shared/checkpoints --steps 500
"""

import argparse
import array
import hashlib
import json
import math
import os
import random
import select
import socket
import sys
import time

import caravan


class Lost(Exception):
    """The ring is broken, or the gang is another one."""


class Ring:
    """Connections to the next and from the previous rank."""

    def __init__(self, rank, world, after, before, interrupted):
        self.rank, self.world = rank, world
        self.after, self.before = after, before
        self.interrupted = interrupted

    @classmethod
    def meet(cls, member, interrupted, patience):
        """Finds the other ranks of the membership. Raises Lost if there is another
        one before all have come."""
        if member.world_size == 1:
            return cls(0, 1, None, None, interrupted)
        ends = time.monotonic() + patience

        def check():
            if interrupted():
                raise Lost("another membership")
            if time.monotonic() > ends:
                raise TimeoutError("not all %d ranks have come within %.0f s" % (member.world_size, patience))

        family = socket.AF_INET6 if ":" in member.master_addr else socket.AF_INET
        own = _listen(family, "::" if family == socket.AF_INET6 else "0.0.0.0", 0)
        try:
            if member.rank == 0:
                table = _gather(member, family, own.getsockname()[1], check)
            else:
                table = _attend(member, family, own.getsockname()[1], check)
            close_by = time.monotonic() + 10

            def closing():
                check()
                if time.monotonic() > close_by:
                    raise Lost("the ring does not close")

            after = _connect(family, tuple(table[(member.rank + 1) % member.world_size]), closing)
            before = _accept(own, closing)
        finally:
            own.close()
        for s in (after, before):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.setblocking(False)
        return cls(member.rank, member.world_size, after, before, interrupted)

    def close(self):
        for s in (self.after, self.before):
            if s is not None:
                s.close()

    def exchange(self, out, size):
        """Sends bytes to the next rank while it receives as many as it should from
        the previous one."""
        got, sent = bytearray(), 0
        while sent < len(out) or len(got) < size:
            readers = [self.before] if len(got) < size else []
            writers = [self.after] if sent < len(out) else []
            readable, writable, _ = select.select(readers, writers, [], 0.2)
            if not readable and not writable and self.interrupted():
                raise Lost("another membership")
            try:
                if writable:
                    sent += self.after.send(out[sent:])
                if readable:
                    piece = self.before.recv(size - len(got))
                    if not piece:
                        raise Lost("the previous rank has gone")
                    got += piece
            except OSError as e:
                raise Lost("a neighbour has gone: %s" % e)
        return bytes(got)

    def all_reduce(self, values):
        """The sum over all ranks, the same on each of them to the last bit: every
        chunk is added up once, in the order of the ring, and then passed on."""
        n = self.world
        if n == 1:
            return list(values)
        bounds = [len(values) * i // n for i in range(n + 1)]
        chunks = [array.array("d", values[bounds[i]:bounds[i + 1]]) for i in range(n)]
        for turn in range(2 * (n - 1)):
            give, take = (self.rank - turn) % n, (self.rank - turn - 1) % n
            got = array.array("d")
            got.frombytes(self.exchange(chunks[give].tobytes(), 8 * len(chunks[take])))
            if turn < n - 1:
                got = array.array("d", (a + b for a, b in zip(got, chunks[take])))
            chunks[take] = got
        return [x for chunk in chunks for x in chunk]


def _listen(family, host, port):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, port))
    s.listen(128)
    s.settimeout(0.2)
    return s


def _accept(listener, check):
    while True:
        try:
            conn, _ = listener.accept()
            conn.settimeout(5)
            return conn
        except socket.timeout:
            check()


def _connect(family, address, check):
    while True:
        try:
            s = socket.socket(family, socket.SOCK_STREAM)
            s.settimeout(5)
            s.connect(address)
            return s
        except OSError:
            s.close()
            check()
            time.sleep(0.05)


def _gather(member, family, port, check):
    """Rank 0: waits for the others and gives all of them everybody's address."""
    while True:
        try:
            listener = _listen(family, member.master_addr, member.master_port)
            break
        except OSError:  # the port is still another membership's
            check()
            time.sleep(0.05)
    table = {0: (member.master_addr, port)}
    conns = {}
    try:
        while len(table) < member.world_size:
            conn = _accept(listener, check)
            try:
                hello = json.loads(conn.makefile().readline(1000))
                same = (hello["epoch"], hello["generation"], hello["world"]) == (member.epoch, member.generation, member.world_size)
                rank = int(hello["rank"])
                if not same or not 0 < rank < member.world_size:
                    raise ValueError("not of this gang")
            except (OSError, ValueError, KeyError, TypeError):
                conn.close()  # it asks again if it belongs here
                continue
            table[rank] = (conn.getpeername()[0], int(hello["port"]))
            if rank in conns:
                conns[rank].close()
            conns[rank] = conn
        answer = json.dumps([table[r] for r in range(member.world_size)]).encode() + b"\n"
        for conn in conns.values():
            try:
                conn.sendall(answer)
            except OSError as e:
                raise Lost("a rank has gone again: %s" % e)
        return json.loads(answer)
    finally:
        listener.close()
        for conn in conns.values():
            conn.close()


def _attend(member, family, port, check):
    """The others: ask rank 0 for everybody's address."""
    hello = {"rank": member.rank, "port": port, "world": member.world_size, "epoch": member.epoch, "generation": member.generation}
    while True:
        conn = _connect(family, (member.master_addr, member.master_port), check)
        try:
            conn.sendall(json.dumps(hello).encode() + b"\n")
            conn.settimeout(0.2)
            answer = b""
            while not answer.endswith(b"\n"):
                try:
                    piece = conn.recv(65536)
                except socket.timeout:
                    check()
                    continue
                if not piece:
                    raise OSError("refused")
                answer += piece
            return json.loads(answer)
        except (OSError, ValueError):
            check()
            time.sleep(0.05)
        finally:
            conn.close()


class Model:
    """Two inputs, tanh units, one output: which of two interleaved classes?"""

    def __init__(self, hidden, seed=1):
        draw = random.Random(seed)
        self.hidden = hidden
        self.weights = [draw.uniform(-1, 1) for _ in range(4 * hidden + 1)]

    def gradient(self, samples):
        """The gradient and the loss, summed over the samples."""
        h, w = self.hidden, self.weights
        grad, loss = [0.0] * len(w), 0.0
        for x, y, want in samples:
            units = [math.tanh(w[4 * j] * x + w[4 * j + 1] * y + w[4 * j + 2]) for j in range(h)]
            z = w[4 * h] + sum(w[4 * j + 3] * units[j] for j in range(h))
            p = 1 / (1 + math.exp(-max(-30.0, min(30.0, z))))
            loss -= math.log(p if want else 1 - p)
            error = p - want
            grad[4 * h] += error
            for j in range(h):
                back = error * w[4 * j + 3] * (1 - units[j] * units[j])
                grad[4 * j] += back * x
                grad[4 * j + 1] += back * y
                grad[4 * j + 2] += back
                grad[4 * j + 3] += error * units[j]
        return grad, loss

    def digest(self):
        return hashlib.sha256(array.array("d", self.weights).tobytes()).hexdigest()[:16]


def dataset(count):
    """Points of four quadrants; the classes are those of an exclusive or."""
    draw = random.Random(7)
    points = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(count)]
    return [(x, y, 1 if (x > 0) != (y > 0) else 0) for x, y in points]


class Trainer:
    def __init__(self, args):
        self.args = args
        self.samples = dataset(args.samples)
        self.model = Model(args.hidden)
        self.step = 0
        self.pending = False
        self.asked = False
        self.gang = caravan.Gang(on_resize=self.on_resize)
        self.ring = None
        self.resume()

    def on_resize(self, new, old):
        say("the gang has %d ranks now, not %d" % (new.world_size, old.world_size))
        self.pending = True

    def interrupted(self):
        self.gang.resized()
        return self.pending

    # Checkpoints: DIR/step-N.json.

    def saved(self):
        """The steps of the checkpoints, newest first."""
        try:
            names = os.listdir(self.args.dir)
        except FileNotFoundError:
            return []
        steps = [n[len("step-"):-len(".json")] for n in names if n.startswith("step-") and n.endswith(".json")]
        return sorted((int(s) for s in steps if s.isdigit()), reverse=True)

    def path(self, step):
        return os.path.join(self.args.dir, "step-%d.json" % step)

    def resume(self):
        for step in self.saved():
            try:
                with open(self.path(step), encoding="utf-8") as f:
                    state = json.load(f)
                if state["step"] != step or len(state["weights"]) != len(self.model.weights):
                    raise ValueError("it holds something else")
                self.step, self.model.weights = step, [float(x) for x in state["weights"]]
                say("goes on from %s" % self.path(step))
                return
            except (OSError, ValueError, KeyError, TypeError) as e:
                say("cannot use %s: %s" % (self.path(step), e))

    def save(self):
        """Rank 0 writes; the others wait for it, and then tell of it as well."""
        if self.ring.rank == 0:
            with self.gang.checkpoint(self.path(self.step), step=self.step) as path:
                with open(path, "w", encoding="utf-8") as f:
                    json.dump({"step": self.step, "weights": self.model.weights}, f)
            for old in self.saved()[3:]:
                os.remove(self.path(old))
        self.ring.all_reduce([0.0] * self.ring.world)
        if self.ring.rank != 0:
            self.gang.completed(self.path(self.step), self.step)
        if self.ring.rank == 0:
            say("checkpoint at step %d" % self.step)

    # The gang.

    def meet(self):
        """Joins the ring and takes over the weights of whoever is furthest."""
        tries = 0
        while True:
            self.pending = False
            member = self.gang.member
            try:
                self.ring = Ring.meet(member, self.interrupted, self.args.patience)
                steps = self.ring.all_reduce([float(self.step) if r == self.ring.rank else 0.0 for r in range(self.ring.world)])
                source = steps.index(max(steps))
                mine = self.model.weights if source == self.ring.rank else [0.0] * len(self.model.weights)
                self.model.weights = self.ring.all_reduce(mine)
                self.step = int(steps[source])
                say("rank %d of %d is at step %d" % (self.ring.rank, self.ring.world, self.step))
                return
            except Lost as e:
                say("starts over: %s" % e)
                self.leave()
                tries = 0 if self.pending else tries + 1
                if tries == 10:
                    sys.exit("the ranks find each other and lose each other again: %s" % e)

    def leave(self):
        if self.ring is not None:
            self.ring.close()
            self.ring = None

    def await_resize(self, why):
        """The ring broke. Either the gang goes on in another size, or this task is
        about to be stopped."""
        say("waits for the gang: %s" % why)
        self.leave()
        ends = time.monotonic() + self.args.patience
        while not self.interrupted():
            if time.monotonic() > ends:
                sys.exit("the gang did not come back within %.0f s: %s" % (self.args.patience, why))
            time.sleep(0.05)

    def train_step(self):
        began = time.monotonic()
        share = self.samples[self.ring.rank::self.ring.world]
        grad, loss = self.model.gradient(share)
        self.asked = self.asked or self.gang.should_checkpoint()
        *grad, loss, asked = self.ring.all_reduce(grad + [loss, float(self.asked)])
        rate = self.args.rate / len(self.samples)
        self.model.weights = [w - rate * g for w, g in zip(self.model.weights, grad)]
        self.step += 1
        time.sleep(self.args.pause)
        loss /= len(self.samples)
        self.gang.report(step=self.step, loss=loss, throughput=len(self.samples) / max(1e-9, time.monotonic() - began))
        if self.ring.rank == 0 and (self.step % self.args.every == 0 or self.step == 1):
            say("step %d loss %.6f" % (self.step, loss))
        if asked or self.step % self.args.every == 0:
            self.save()
            self.asked = False

    def run(self):
        self.meet()
        while self.step < self.args.steps:
            try:
                if self.interrupted():
                    raise Lost("another membership")
                self.train_step()
            except Lost as e:
                if not self.pending:
                    self.await_resize(str(e))
                self.leave()
                self.meet()
        _, loss = self.model.gradient(self.samples)
        say("done: step %d loss %.6f weights %s" % (self.step, loss / len(self.samples), self.model.digest()))
        self.leave()


def say(text):
    print(text, flush=True)


def main():
    p = argparse.ArgumentParser(description="train a small network on many nodes")
    p.add_argument("--dir", default="checkpoints", help="where checkpoints are kept, seen by all members")
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--every", type=int, default=50, help="steps between two checkpoints")
    p.add_argument("--samples", type=int, default=256)
    p.add_argument("--hidden", type=int, default=8)
    p.add_argument("--rate", type=float, default=2.0)
    p.add_argument("--pause", type=float, default=0.0, help="seconds that a step takes longer than it must")
    p.add_argument("--patience", type=float, default=120.0, help="seconds to wait for other ranks")
    Trainer(p.parse_args()).run()


if __name__ == "__main__":
    main()
