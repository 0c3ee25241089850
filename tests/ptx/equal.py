#!/usr/bin/env python3
"""Shows of mutants on the list of survivors, class `solved`, that they do what the kernel does.

    equal.py PTX ENTRY SURVIVORS KERNEL [CLASS]

PTX: `isoc --emit=ptx`'s; ENTRY: the kernel's name in it; KERNEL: its name on the list. Needs z3
(python3-z3). A mutant is shown where no operands exist, within the ranges of ptx_facts.py, for
which its result is another one, or the result of all that takes its result; a dropped branch where
it is never taken. Operands are followed through the text to where they are made, and conditions
of the branches on the way hold. Exit status 1: some mutant was not shown.
"""
import collections
import re
import sys

import z3

import ptx_facts as facts

STORES = ("st.", "red", "bar", "bra", "ret", "cp.async", "membar", "griddep", "fence", "prefetch")
OPAQUE = STORES + ("ld.", "shfl", "mma", "ldm", "atom")
REGISTER = r"%(?:rd|rs|r|p|f)\d+|%tid\.x|%ctaid\.x|%nctaid\.x"
TIMEOUT = 20000  # milliseconds of a question


def registers(text):
    return re.findall(REGISTER, text)


def width(register):
    kind = re.match(r"%(rd|rs|r|p|f)\d", register)
    return {"rd": 64, "rs": 16, "p": 1}.get(kind.group(1), 32) if kind else 32


def operands(text):
    out, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c in "{[") - (c in "}]")
        if c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    return [o for o in out if o]


class Instruction:
    def __init__(self, text, line):
        found = re.match(r"\s*(@!?%p\d+\s+)?([a-z][\w.:]*)\s*(.*?);\s*$", text)
        self.line = line
        self.known = bool(found)
        if not found:
            return
        self.guard = (found.group(1) or "").strip()
        self.op = found.group(2)
        self.args = operands(found.group(3))
        stores = self.op.startswith(STORES)
        self.results = [] if stores or not self.args else registers(self.args[0])
        self.taken = [r for a in (self.args if stores else self.args[1:]) for r in registers(a)]
        self.taken += registers(self.guard)


class Kernel:
    """The text: instructions by line, blocks, who is before whom."""

    def __init__(self, ptx, entry):
        start = ptx.index(".visible .entry " + entry + "(")
        self.text = ptx[start:ptx.index("\n}\n", start) + 2].split("\n")
        self.at, labels = {}, {}
        for n, line in enumerate(self.text, 1):
            label = re.match(r"(\$\w+):", line)
            if label:
                labels[label.group(1)] = n
            i = Instruction(line, n)
            if i.known and not line.lstrip().startswith("."):
                self.at[n] = i
        self.order = sorted(self.at)
        self.defs, self.uses = collections.defaultdict(list), collections.defaultdict(list)
        for n in self.order:
            for r in self.at[n].results:
                self.defs[r].append(n)
            for r in self.at[n].taken:
                self.uses[r].append(n)
        self.cut(labels)
        self.dominate()

    def first_at(self, n):
        return next(m for m in self.order if m >= n)

    def cut(self, labels):
        starts = {self.order[0]} | {self.first_at(n) for n in labels.values()}
        for n, after in zip(self.order, self.order[1:]):
            if self.at[n].op.startswith(("bra", "ret")):
                starts.add(after)
        self.block_of, self.blocks = {}, {}
        for n in self.order:
            block = n if n in starts else block
            self.blocks.setdefault(block, []).append(n)
            self.block_of[n] = block
        self.before = collections.defaultdict(list)
        names = list(self.blocks)
        for b, after in zip(names, names[1:] + [None]):
            last = self.at[self.blocks[b][-1]]
            if last.op.startswith("bra"):
                self.before[self.first_at(labels[last.args[0]])].append((b, last.guard, True))
            if not last.op.startswith("ret") and (last.guard or not last.op.startswith("bra")):
                guard = last.guard if last.op.startswith("bra") else ""
                self.before[after].append((b, guard, False))

    def dominate(self):
        names = list(self.blocks)
        self.dominators = {b: set(names) for b in names}
        self.dominators[names[0]] = {names[0]}
        changed = True
        while changed:
            changed = False
            for b in names[1:]:
                met = [self.dominators[p] for p, _, _ in self.before[b]]
                new = (set.intersection(*met) if met else set()) | {b}
                changed |= new != self.dominators[b]
                self.dominators[b] = new

    def reaching(self, register, block, line):
        """Where the value that is read there is made: at a line, or where a block's ways meet."""
        if len(self.defs[register]) == 1:
            return "line", self.defs[register][0]
        while True:
            made = [n for n in self.blocks[block] if register in self.at[n].results
                    and (line is None or n < line)]
            if made:
                return "line", made[-1]
            before = {p for p, _, _ in self.before[block]}
            if len(before) != 1:
                return "block", block
            block, line = before.pop(), None


class Unknown(Exception):
    pass


class Values:
    """Registers as expressions of what is not followed further."""

    def __init__(self, kernel, other=None):
        self.kernel = kernel
        self.made = {}
        self.limits = other.limits if other else []
        self.free = other.free if other else {}

    def fresh(self, name, bits, limit=None):
        if name not in self.free:
            v = z3.Bool(name) if bits == 1 else z3.BitVec(name, bits)
            self.free[name] = v
            if limit and bits > 1:
                self.limits.append(facts.holds(limit, v))
        return self.free[name]

    def read(self, register, line):
        if register in facts.SPECIAL:
            return self.fresh(register, 32, facts.SPECIAL[register])
        at = self.kernel.reaching(register, self.kernel.block_of[line], line)
        return self.value(register, at)

    def value(self, register, at):
        key = register, at
        if key not in self.made:
            if at[0] == "block":
                self.made[key] = self.fresh("%s@%d" % (register, at[1]), width(register),
                                            facts.JOINED.get(register))
            else:
                self.made[key] = self.result(self.kernel.at[at[1]], register)
        return self.made[key]

    def result(self, i, register):
        limit = facts.LINES.get(register)
        value = None if limit else self.computed(i, register)
        if value is None:
            limit = limit or self.loaded(i, register)
            value = self.fresh("%s#%d" % (register, i.line), width(register), limit)
        return value

    def loaded(self, i, register):
        """The limit of what a load brings, by where it lies."""
        if not i.op.startswith("ld."):
            return None
        base = re.match(r"\[([^\]+]+)(?:\+(-?\d+))?\]", i.args[1])
        place, offset = base.group(1), int(base.group(2) or 0)
        offset += registers(i.args[0]).index(register) * 4
        if i.op.startswith("ld.param"):
            return facts.parameter(place, offset, width(register))
        if i.op.startswith("ld.global"):
            return facts.GLOBAL
        if place.startswith("%"):
            address = self.read(place, i.line) + z3.BitVecVal(offset, width(place))
        else:
            address = z3.BitVecVal(offset, 64)
        return self.region(address, self.path(i.line))

    def region(self, address, path):
        solver = z3.Solver()
        solver.set("timeout", TIMEOUT)
        solver.add(*self.limits, *path)
        if solver.check() != z3.sat:
            return None
        at = solver.model().eval(address, True).as_long()
        for low, end, limit in facts.SHARED:
            if low <= at < end:
                solver.add(z3.Not(z3.And(z3.UGE(address, low), z3.ULT(address, end))))
                return limit if solver.check() == z3.unsat else None
        return None

    def operand(self, text, i, bits):
        if text.startswith("!"):
            return z3.Not(self.operand(text[1:], i, 1))
        if text.startswith("%"):
            return self.read(text, i.line)
        if text.startswith("0f"):
            return z3.BitVecVal(int(text[2:], 16), 32)
        if text == "iso_dynamic":
            return z3.BitVecVal(0, bits)
        if re.match(r"-?\d+$", text):
            return z3.BoolVal(text != "0") if bits == 1 else z3.BitVecVal(int(text), bits)
        raise Unknown(text)

    def computed(self, i, register):
        """None: not of integers, or not arithmetic."""
        name, kind = (i.op.split(".") + [""])[:2]
        bits = width(register)
        signed = kind.startswith("s")
        of_reals = name not in ("mov", "selp") and re.search(r"\.(rn|f32|bf16)\b", i.op)
        if name not in OPERATIONS or of_reals:
            return None
        return OPERATIONS[name](self, i, bits, signed)

    def path(self, line):
        """The conditions under which the instruction runs."""
        out, block = [], self.kernel.block_of[line]
        while True:
            before = self.kernel.before[block]
            if len(before) == 1:
                at, guard, taken = before[0]
                if guard:
                    last = self.kernel.blocks[at][-1]
                    held = self.read(guard.lstrip("@!"), last)
                    out.append(held if taken != guard.startswith("@!") else z3.Not(held))
                block = at
            else:
                above = self.kernel.dominators[block] - {block}
                if not above:
                    return out
                block = max(above, key=lambda b: len(self.kernel.dominators[b]))


def binary(function):
    def run(v, i, bits, signed):
        return function(v.operand(i.args[1], i, bits), v.operand(i.args[2], i, bits), bits, signed)
    return run


def multiply(v, i, bits, signed):
    if "wide" not in i.op:
        return v.operand(i.args[1], i, bits) * v.operand(i.args[2], i, bits)
    extend = z3.SignExt if ".s32" in i.op else z3.ZeroExt
    return extend(32, v.operand(i.args[1], i, 32)) * extend(32, v.operand(i.args[2], i, 32))


def multiply_add(v, i, bits, signed):
    return multiply(v, i, bits, signed) + v.operand(i.args[3], i, bits)


def shift(v, i, bits, signed):
    x, by = v.operand(i.args[1], i, bits), v.operand(i.args[2], i, 32)
    by = z3.ZeroExt(bits - 32, by) if bits > 32 else by
    if i.op.startswith("shl"):
        return x << by
    return x >> by if signed else z3.LShR(x, by)


def move(v, i, bits, signed):
    source = i.args[1]
    if source[0] not in "%0123456789-" and source != "iso_dynamic":
        return None
    if source.startswith("%") and width(source) != bits:
        return None
    return v.operand(source, i, bits)


def convert(v, i, bits, signed):
    source, last = i.args[1], i.op.split(".")[-1]
    have = width(source)
    x = v.operand(source, i, have)
    if have < bits:
        return (z3.SignExt if last.startswith("s") else z3.ZeroExt)(bits - have, x)
    return z3.Extract(bits - 1, 0, x) if have > bits else x


def choose(v, i, bits, signed):
    return z3.If(v.operand(i.args[3], i, 1), v.operand(i.args[1], i, bits),
                 v.operand(i.args[2], i, bits))


def compare(v, i, bits, signed):
    _, what, kind = i.op.split(".")[:3]
    size = int(kind[1:])
    x, y = v.operand(i.args[1], i, size), v.operand(i.args[2], i, size)
    if what in ("eq", "ne"):
        return x == y if what == "eq" else x != y
    unsigned = {"lt": z3.ULT, "le": z3.ULE, "gt": z3.UGT, "ge": z3.UGE}
    plain = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    return unsigned[what](x, y) if kind.startswith("u") else plain[what]


def bitwise(of_bools, of_bits):
    return binary(lambda x, y, bits, signed: of_bools(x, y) if bits == 1 else of_bits(x, y))


def invert(v, i, bits, signed):
    x = v.operand(i.args[1], i, bits)
    return z3.Not(x) if bits == 1 else ~x


OPERATIONS = {
    "add": binary(lambda x, y, bits, signed: x + y),
    "sub": binary(lambda x, y, bits, signed: x - y),
    "div": binary(lambda x, y, bits, signed: x / y if signed else None),
    "rem": binary(lambda x, y, bits, signed: z3.SRem(x, y) if signed else None),
    "min": binary(lambda x, y, bits, signed: z3.If(x < y, x, y) if signed else None),
    "max": binary(lambda x, y, bits, signed: z3.If(x < y, y, x) if signed else None),
    "and": bitwise(z3.And, lambda x, y: x & y),
    "or": bitwise(z3.Or, lambda x, y: x | y),
    "xor": bitwise(z3.Xor, lambda x, y: x ^ y),
    "not": invert, "mul": multiply, "mad": multiply_add, "shl": shift, "shr": shift,
    "mov": move, "cvta": move, "cvt": convert, "selp": choose, "setp": compare,
}


# ---- mutants ---------------------------------------------------------------------------------


def impossible(values, conditions):
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT)
    solver.add(*values.limits, *facts.together(values.free), *conditions)
    return solver.check() == z3.unsat


def mutant_of(kernel, line, shape):
    """The mutant's instruction; None: nothing stands there."""
    if " -> " not in shape:
        return None
    names = list(dict.fromkeys(re.findall(r"%[a-z]+\d+", kernel.text[line - 1])))
    text = re.sub(r"%[a-z](\d+)", lambda m: names[int(m.group(1))], shape.split(" -> ")[1])
    return Instruction(text, line)


def never_taken(kernel, i):
    values = Values(kernel)
    taken = values.read(i.guard.lstrip("@!"), i.line)
    taken = z3.Not(taken) if i.guard.startswith("@!") else taken
    return impossible(values, values.path(i.line) + [taken])


def takers_agree(kernel, own, other, made):
    """Whether all that takes these results, made at a line, comes to the same."""
    waiting, seen = list(made), set()
    while waiting:
        register, line = waiting.pop()
        if (register, line) in seen:
            continue
        seen.add((register, line))
        for n in kernel.uses[register]:
            at = kernel.reaching(register, kernel.block_of[n], n)
            if at[0] == "block":
                return False
            if at[1] != line:
                continue
            taker, path = kernel.at[n], own.path(n)
            if taker.op.startswith(OPAQUE):
                if not impossible(own, path + [own.read(register, n) != other.read(register, n)]):
                    return False
                continue
            for r in taker.results:
                a, b = own.computed(taker, r), other.computed(taker, r)
                if a is None or b is None:
                    return False
                if not impossible(own, path + [a != b]):
                    waiting.append((r, n))
    return True


def is_shown(kernel, line, shape):
    own, mutant = kernel.at[line], mutant_of(kernel, line, shape)
    if own.op.startswith("bra"):
        return bool(own.guard) and mutant is None and never_taken(kernel, own)
    if own.op.startswith(OPAQUE) or len(own.results) != 1:
        return False
    register = own.results[0]
    values = Values(kernel)
    is_value = values.computed(own, register)
    if mutant is not None:
        other = values.computed(mutant, mutant.results[0])
    elif len(kernel.defs[register]) == 1:
        other = values.fresh("nothing", width(register))
    else:
        other = values.read(register, line)
    if is_value is None or other is None:
        return False
    if impossible(values, values.path(line) + [is_value != other]):
        return True
    changed = Values(kernel, values)
    changed.made[register, ("line", line)] = other
    return takers_agree(kernel, values, changed, [(register, line)])


def listed(path, kernel, wanted):
    inside = False
    for line in open(path):
        if line.startswith("@"):
            inside = line.split()[1] == kernel
        elif inside and line.split(" ", 1)[0] == wanted:
            _, number, shape = line.rstrip("\n").split(" ", 2)
            yield int(number), shape


def main(ptx, entry, survivors, name, wanted="solved"):
    kernel = Kernel(open(ptx).read(), entry)
    shown = left = 0
    for line, shape in listed(survivors, name, wanted):
        try:
            good = is_shown(kernel, line, shape)
        except (Unknown, z3.Z3Exception):
            good = False
        shown += good
        left += not good
        if not good:
            print("not shown: line %d %s" % (line, shape), flush=True)
    print("%s: %d shown, %d not" % (name, shown, left))
    return left > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
