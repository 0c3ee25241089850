"""What equal.py takes as known of decoding attention's text (hash 2790b36c9cce36cf): read from the
kernel, its launcher and the interface, not derived. Limits are both ends of a signed number, or a
function of it."""
import z3

MOST = 2**31 - 1
KEYS = (0, MOST - 512)  # of a sequence; rows of a launch


def whole(multiple, most):
    return lambda v: z3.And(v >= 0, v <= most, v & (multiple - 1) == 0)


def holds(limit, v):
    if callable(limit):
        return limit(v)
    return z3.And(v >= z3.BitVecVal(limit[0], v.size()), v <= z3.BitVecVal(limit[1], v.size()))


SPECIAL = {"%tid.x": (0, 127), "%ctaid.x": (0, MOST), "%nctaid.x": (1, MOST)}

# IsoAttendArgs by bytes; what is not named here of 64 bits is a stride or an address.
PARAMETERS = {8: (1, MOST - 512), 12: (1, 2**20), 16: (1, 16), 20: (1, 16), 72: (1, MOST),
              448: (1, 2**20), 452: (0, MOST)}
FIRST = 12  # %rd1 points there


def parameter(place, offset, bits):
    offset += FIRST if place == "%rd1" else 0
    return PARAMETERS.get(offset) if bits == 32 else (0, 2**47)


GLOBAL = (0, 2**30)  # positions, lengths, starts, pages

# Shared memory: IsoDecodeShared after its queries. Every token of the contract sees from key 0.
NO_ROW, NOWHERE = -2, -1
SHARED = [
    (97792, 97856, (NO_ROW, MOST)), (97856, 97984, (0, MOST)), (97984, 98048, (0, 0)),
    (98048, 98112, KEYS), (98112, 101184, (NOWHERE, MOST)), (101184, 101188, (0, 1)),
    (101192, 101704, (NO_ROW, MOST)), (101704, 102216, (0, 0)), (102216, 102728, KEYS),
    (102728, 103244, (0, 2**30)), (103244, 103504, (0, 128)), (103504, 104016, (-1, MOST)),
    (104016, 104032, (0, 2**30)), (104032, 104036, (0, 1)), (104036, 104040, (0, MOST)),
]


def none_or_first(v):
    return z3.Or(v == 0, v == MOST)


# Loop counters and values that ways bring together.
JOINED = {
    "%r2293": KEYS, "%r2295": KEYS, "%r2298": (0, MOST), "%r2300": KEYS, "%r2301": KEYS,
    "%r2305": (0, 16), "%r2318": (0, 2**24), "%r2304": (0, 160), "%r2315": none_or_first,
    "%r2316": KEYS, "%r2312": (0, 140), "%r2309": (0, 140), "%r2321": (0, 127),
    "%r2322": (0, 160), "%r2324": (1, 16), "%r2325": (0, 0), "%r2326": KEYS, "%r2331": (0, MOST),
    "%r2332": (0, 0), "%r2333": KEYS, "%r2334": none_or_first, "%r2391": (0, 2**22),
    "%r2408": whole(128, MOST - 1024), "%r2407": (0, 2**24), "%r2404": (0, 1024),
    "%r2414": whole(32, 128), "%r2415": (0, 16), "%r2416": (0, 16), "%r2417": (0, 16),
    "%r2418": (0, 16), "%r2392": (NOWHERE, MOST), "%r2393": (0, MOST), "%r2396": (NOWHERE, MOST),
    "%r2397": (0, MOST), "%r2400": (NOWHERE, MOST), "%r2401": (0, MOST),
    "%r2410": (NOWHERE, MOST), "%r2411": (0, MOST), "%r2421": (0, 2**24), "%r2423": (0, 2**25),
    "%r2424": (0, 2**28), "%r2425": (0, 512), "%r2434": (0, 2**24), "%r2431": (0, 2**24),
    "%r2430": (0, 2**24), "%r2435": whole(256, MOST - 1024), "%r2436": whole(256, MOST - 1024),
    "%r2433": whole(256, MOST - 1024),
}

# Where keys and values lie, in elements: within 64 GiB, which the launcher checks. Loads whose
# places the solver does not find.
LINES = {r: (0, 2**36) for r in ("%rd194", "%rd201", "%rd223", "%rd230", "%rd249", "%rd256",
                                 "%rd583", "%rd590")}
LINES.update({r: (0, 0) for r in ("%r669", "%r673", "%r677", "%r681", "%r683", "%r685", "%r92",
                                  "%r1736", "%r1749", "%r1762", "%r1775")})
LINES.update({r: KEYS for r in ("%r668", "%r672", "%r676", "%r680", "%r682", "%r684", "%r91",
                                "%r1737", "%r1750", "%r1763", "%r1776")})


def together(free):
    """A tile without keys has 2^31 - 1 and 0 as its bounds."""
    for name, low in list(free.items()):
        if name.startswith("%r2334@"):
            high = free.get(name.replace("2334", "2333"))
            if high is not None:
                yield z3.Or(low == 0, high == 0)
                yield z3.Or(low != 0, high > 0)
