// Sequences in tiles of shared memory: a chunk of rows for each thread, joined by shuffles in a warp and in order beyond it.
//
// A thread finds what its chunk makes of a value before it, its warp what the chunks before make of theirs; then every value
// comes from the one before, as in a plain loop. What warps make is applied in order. A block takes the tiles of some
// sequences one after another; or, CHAINED, one tile: it tells the blocks after it what its tile makes, looks back at what those
// before have told, and tells the value behind it (decoupled look-back, Merrill and Garland 2016). Tiles are in groups: what
// those of a group make is folded as they tell it, by a tree that is always the same, and values go from group to group. Tiles
// are handed out in order, by a counter, so a block waits only for blocks that run. No bit depends on who was first.
//
// A tile is copied as memory has it: TOGETHER, rows of a sequence lie side by side; else neighbouring sequences do.
#include "stretches.cu"

const int WARP = 32;

// ------------------------------------------------------------------------------------------------------------------- places

// What a thread is of its block: of a sequence, counted in the block and in all, and of its rows.
struct Place {
  int s, p, warp, lane;
  int width, count, shift;  // sequences of a block, and threads of each, which are 2^shift
  int apart;         // lanes between neighbouring chunks of a sequence
  int lanes;         // of a warp that have a sequence
  int rank, warps;   // of its warp among those that have its sequence, and how many they are
  int here;          // sequences that there are
  Index first;       // of the sequences
};

__device__ __forceinline__ Place place_of(const Job& job, Index group, bool together) {
  Place at;
  const int t = int(threadIdx.x);
  at.width = int(job.width), at.count = int(job.count), at.shift = __ffs(at.count) - 1;
  at.s = together ? t >> at.shift : t & (at.width - 1);
  at.p = together ? t & (at.count - 1) : t / at.width;
  at.warp = t / WARP, at.lane = t % WARP;
  at.apart = together ? 1 : at.width < WARP ? at.width : WARP;
  at.lanes = together ? (at.count < WARP ? at.count : WARP) : WARP / at.apart;
  at.rank = at.p / at.lanes, at.warps = (at.count + at.lanes - 1) / at.lanes;
  at.first = group * at.width;
  const Index rest = job.sequences - at.first;
  at.here = rest < at.width ? int(rest) : at.width;
  return at;
}

// What is told of a tile or a group of tiles: nothing yet; what it makes of a value, or that this is not to be trusted; and,
// besides, the value behind it.
enum Told { NOTHING = 0, PART = 1, HARD = 2, STATE = 4 };

template <typename Rows> struct Record {
  int* told;
  typename Rows::State* states;
  typename Rows::Part* parts;

  __device__ __forceinline__ void tell(Index k, int what) const {
    __threadfence();
    *const_cast<volatile int*>(told + k) = what;
  }
  __device__ __forceinline__ void tell_part(Index k, const typename Rows::Part& part) const {
    parts[k] = part;
    tell(k, PART);
  }
  __device__ __forceinline__ void tell_state(Index k, const typename Rows::State& state, int before) const {
    states[k] = state;
    tell(k, before | STATE);
  }
  __device__ __forceinline__ int heard(Index k) const { return fresh(told[k]); }
  __device__ __forceinline__ typename Rows::State state_when_told(Index k) const {
    while (!(heard(k) & STATE)) __nanosleep(40);
    __threadfence();
    return fresh(states[k]);
  }
};

template <typename Rows> struct Chain {
  unsigned long long* tickets;
  Record<Rows> tiles, groups;

  __device__ __forceinline__ explicit Chain(const Job& job) {
    const Index size = job.tiles * job.sequences, more = (int(job.tiles - 1) / int(job.span) + 1) * job.sequences;
    const Index all = size + more;
    tickets = static_cast<unsigned long long*>(job.kept);
    tiles.told = reinterpret_cast<int*>(tickets + 2), groups.told = tiles.told + size;
    tiles.states = reinterpret_cast<typename Rows::State*>(tiles.told + (all + 3) / 4 * 4), groups.states = tiles.states + size;
    tiles.parts = reinterpret_cast<typename Rows::Part*>(tiles.states + all), groups.parts = tiles.parts + size;
  }
};

// Lanes of a warp that look back for one sequence, and what they look at.
struct Looker {
  int lane, first, own, lanes;  // in the warp, the first of them, its place among them, how many
  bool there;  // whether they have a sequence
  Index sequence;
};

// The value before a group, from what is told of those before it.
template <typename Rows>
__device__ __forceinline__ typename Rows::State look_back(const Job& job, const Record<Rows>& groups, Index group,
                                                          const Looker& at) {
  typedef typename Rows::State State;
  const Index seen = group - 1 - at.own, k = seen * job.sequences + at.sequence;
  const bool reads = at.there && seen >= 0;
  const unsigned lanes = at.lanes == WARP ? ~0u : (1u << at.lanes) - 1;
  int nearest;
  for (;;) {  // until there is a value, and nothing between is missing
    const int told = reads ? groups.heard(k) : STATE;
    const unsigned values = __ballot_sync(~0u, told & STATE) >> at.first & lanes;
    const unsigned missing = __ballot_sync(~0u, told == NOTHING) >> at.first & lanes;
    const unsigned below = (values & (0u - values)) - 1;
    nearest = __ffs(int(values)) - 1;
    if (__all_sync(~0u, values && !(missing & below))) break;
    __nanosleep(40);
  }
  __threadfence();
  State state = Rows::begin(job, at.there ? at.sequence : 0);
  if (reads && at.own == nearest) state = fresh(groups.states[k]);
  typename Rows::Part part = {};
  if (reads && at.own < nearest) part = fresh(groups.parts[k]);
  state = from_lane(state, at.first + nearest);
  int most = nearest;  // of all that look back in this warp
#pragma unroll
  for (int apart = WARP / 2; apart > 0; apart /= 2) {
    const int other = from_lane(most, at.lane ^ apart);
    most = other > most ? other : most;
  }
#pragma unroll 1
  for (int next = most - 1; next >= 0; next--) {
    const typename Rows::Part one = from_lane(part, at.first + next);
    if (next >= nearest) continue;
    state = Rows::apply(one, state);
    if (Rows::sound(state)) continue;
    state = groups.state_when_told((group - 1 - next) * job.sequences + at.sequence);  // it is found step by step
  }
  return state;
}

enum Mark { UNSOUND = 1, UNTOLD = 2, GROUP = 4 };  // of a sequence: its tile is computed step by step, and nothing is told of the
                                                   // value behind it, or behind its group, before

// The value before a tile. What the tile makes is told, and the value behind it, or the marks say what is left to tell.
template <typename Rows>
__device__ __forceinline__ typename Rows::State pass_on(const Job& job, const Chain<Rows>& chain, Index tile, const Looker& at,
                                                        const typename Rows::Part& total, bool trusted, int& marks) {
  typedef typename Rows::Part Part;
  typedef typename Rows::State State;
  const Index group = int(tile) / int(job.span), k = tile * job.sequences + at.sequence, g = group * job.sequences + at.sequence;
  const int place = int(tile - group * job.span);  // in the group
  const bool tells = at.there && at.own == 0, last = place == job.span - 1;
  if (tells) {
    if (trusted) chain.tiles.tell_part(k, total);
    else chain.tiles.tell(k, HARD);
  }

  // what the tiles before it in its group make
  const Index from = k + (at.own - place) * job.sequences;
  const bool reads = at.there && at.own < place;
  int told;
  for (;;) {
    told = reads ? chain.tiles.heard(from) : PART;
    if (__all_sync(~0u, told != NOTHING)) break;
    __nanosleep(40);
  }
  __threadfence();
  int good = told & PART;
  Part folded = {};
  if (reads && good) folded = fresh(chain.tiles.parts[from]);
#pragma unroll 1
  for (int step = 1; step < place; step *= 2) {
    const Part left = from_lane(folded, at.lane - step);
    const int left_good = from_lane(good, at.lane - step);
    if (at.own < step || !reads) continue;
    good = good && left_good;
    if (good) folded = Rows::join(left, folded);
    good = good && Rows::sound(folded);
  }
  folded = from_lane(folded, at.first + (place ? place - 1 : 0));
  good = from_lane(good, at.first + (place ? place - 1 : 0)) || place == 0;

  Part whole = total;
  bool whole_good = last && good && trusted;
  if (whole_good && place) whole = Rows::join(folded, total);
  whole_good = whole_good && Rows::sound(whole);
  if (whole_good && tells) chain.groups.tell_part(g, whole);
  State before = look_back(job, chain.groups, group, at);
  if (whole_good) {
    const State next = Rows::apply(whole, before);
    whole_good = Rows::sound(next);
    if (whole_good && tells) chain.groups.tell_state(g, next, PART);
  }

  if (place) {
    if (good) before = Rows::apply(folded, before);
    if (at.there && !(good && Rows::sound(before))) before = chain.tiles.state_when_told(k - job.sequences);
  }
  const State behind = trusted ? Rows::apply(total, before) : before;
  const bool known = trusted && Rows::sound(behind);
  if (known && tells) {
    chain.tiles.tell_state(k, behind, PART);
    if (last && !whole_good) chain.groups.tell_state(g, behind, NOTHING);
  }
  marks = known ? 0 : UNSOUND | UNTOLD | (last && !whole_good ? GROUP : 0);
  __syncwarp();
  return before;
}

// --------------------------------------------------------------------------------------------------------------------- tiles

// All places of a tile as memory has them, and where an operand has what is there, if anything is.
template <bool TOGETHER, typename T, typename Do>
__device__ __forceinline__ void each_place(const Job& job, const Place& at, T* begin, Index step, const Index* offsets, Index first,
                                           const Do& act) {
  const int thread = int(threadIdx.x), threads = int(blockDim.x), chunk = int(job.chunk), rows = at.count * chunk;
  const int rest = job.n - first < rows ? int(job.n - first) : rows;
  begin += first * step;
  if (!TOGETHER || at.width == 1) {  // a thread has one sequence
    const Index down = step * (Index(1) << at.shift);
    const int there = at.s < at.here && at.p < rest ? (rest - at.p + at.count - 1) >> at.shift : 0;
    Index place = offsets[at.s] + at.p * step;
#pragma unroll 4
    for (int r = 0; r < chunk; r++, place += down) act(r * threads + thread, r < there, begin + place);
  } else {
    int s = thread / rows;
    unsigned i = unsigned(thread - s * rows);
    const int more = threads / rows, down = threads - more * rows;
#pragma unroll 4
    for (int r = 0; r < chunk; r++) {
      act(r * threads + thread, s < at.here && int(i) < rest, begin + (offsets[s] + Index(i) * step));
      s += more, i += unsigned(down);
      if (int(i) >= rows) i -= unsigned(rows), s++;
    }
  }
}

// The same by 16 bytes, which lie so in memory and in the tile (`is_wide`): those of a sequence, or else of a row.
template <bool TOGETHER, typename T, typename Do>
__device__ __forceinline__ void each_sixteen(const Job& job, const Place& at, T* begin, Index step, const Index* offsets, Index first,
                                             const Do& act) {
  const int some = sizeof(Sixteen) / sizeof(T), rows = at.count * int(job.chunk);
  const int rest = job.n - first < rows ? int(job.n - first) : rows;
  const int lines = TOGETHER ? at.width : rows, each = (TOGETHER ? rows : at.width) / some;
  const int known = TOGETHER ? at.here : rest, there = (TOGETHER ? rest : at.here) / some;
  const int more = int(blockDim.x) / each, down = int(blockDim.x) - more * each;
  int line = int(threadIdx.x) / each, i = int(threadIdx.x) - line * each;
  begin += TOGETHER ? first : first * step + offsets[0];
#pragma unroll 2
  for (int k = int(threadIdx.x); k < lines * each; k += int(blockDim.x)) {
    const bool found = line < known && i < there;
    act(k, found, sixteen(begin + (TOGETHER ? offsets[line] : line * step), i));
    line += more, i += down;
    if (i >= each) i -= each, line++;
  }
}

// Whether an operand's part of a tile can be moved by 16 bytes, of which the host knows what lies where (``job.wide``).
template <bool TOGETHER, typename T>
__device__ __forceinline__ bool is_wide(const Job& job, const Place& at, int operand) {
  const int rows = at.count * int(job.chunk), lengths = TOGETHER ? rows | int(job.n & 15) : at.width | at.here;
  return (job.wide >> operand & 1) && lengths % int(sizeof(Sixteen) / sizeof(T)) == 0 && is_aligned(start<T>(job, operand));
}

template <typename Rows, bool TOGETHER>
__device__ __forceinline__ void load(typename Rows::Value* tile, const Job& job, int operand, const Index* offsets, Index first,
                                     const Place& at) {
  typedef typename Rows::Value T;
  const T absent = Rows::absent(operand - X), *begin = start<T>(job, operand);
  if (is_wide<TOGETHER, T>(job, at, operand)) {
    each_sixteen<TOGETHER>(job, at, begin, job.row[operand], offsets, first, [&](int k, bool there, const Sixteen* from) {
      if (there) {
        copy_later(sixteen(tile, k), from);
      } else {
        const int some = sizeof(Sixteen) / sizeof(T);
#pragma unroll
        for (int j = 0; j < some; j++) tile[k * some + j] = absent;
      }
    });
  } else {
    each_place<TOGETHER>(job, at, begin, job.row[operand], offsets, first, [&](int k, bool there, const T* from) {
      if (there) copy_later(tile + k, from);
      else tile[k] = absent;
    });
  }
}

template <typename Rows, bool TOGETHER>
__device__ __forceinline__ void store(const typename Rows::Value* tile, const Job& job, const Index* offsets, Index first,
                                      const Place& at) {
  typedef typename Rows::Value T;
  T* y = static_cast<T*>(job.operand[Y]);
  if (is_wide<TOGETHER, T>(job, at, Y)) {
    each_sixteen<TOGETHER>(job, at, y, job.row[Y], offsets, first, [&](int k, bool there, Sixteen* to) {
      if (there) *to = *sixteen(tile, k);
    });
  } else {
    each_place<TOGETHER>(job, at, y, job.row[Y], offsets, first, [&](int k, bool there, T* to) {
      if (there) *to = tile[k];
    });
  }
}

template <typename Rows, bool TOGETHER, bool CHAINED> __device__ __forceinline__ void scan(const Job& job) {
  typedef typename Rows::Value T;
  typedef typename Rows::Part Part;
  typedef typename Rows::State State;
  SHARED_MEMORY(memory);
  const int rows = int(job.count * job.chunk);
  Index* numbers = reinterpret_cast<Index*>(memory);
  Index tile = 0, group = blockIdx.x;
  Chain<Rows> chain(job);
  if (CHAINED) {
    if (threadIdx.x == 0) numbers[0] = Index(atomicAdd(chain.tickets, 1ULL));
    __syncthreads();
    tile = int(numbers[0]) / int(job.groups), group = numbers[0] - tile * job.groups;
    __syncthreads();
  }
  const Place at = place_of(job, group, TOGETHER);
  const Index sequence = at.first + at.s;
  const int entry = at.rank * at.width + at.s;  // of the totals
  Index* offsets = numbers;  // of Y, X and the coefficient
  Part* totals = reinterpret_cast<Part*>(offsets + 3 * at.width);
  State* states = reinterpret_cast<State*>(totals + at.warps * at.width);  // before the tile
  const int before_values = int(reinterpret_cast<unsigned char*>(states + at.width) - memory), sixteens = sizeof(Sixteen);
  T* values = reinterpret_cast<T*>(memory + (before_values + sixteens - 1) / sixteens * sixteens);  // x, then y; then
                                                                                  // coefficients, or what is kept of x
  T* beside = values + blockDim.x * job.chunk;
  int* marks = reinterpret_cast<int*>(beside + blockDim.x * job.chunk);  // of the sequences, then of any
  const int begin = TOGETHER ? int(threadIdx.x * job.chunk) : at.p * int(job.chunk) * at.width + at.s;
  Rows chunk_rows = {{values + begin, beside + begin, TOGETHER ? 1 : at.width, int(job.chunk)}};
  for (int k = threadIdx.x; k < 3 * at.width; k += blockDim.x) {
    const int s = k % at.width, operand = k / at.width;
    offsets[k] = s < at.here && operand <= Rows::operands ? offset(job, operand, at.first + s) : 0;
  }
  for (int k = threadIdx.x; k < at.width; k += blockDim.x) {
    if (!CHAINED) states[k] = Rows::begin(job, at.first + (k < at.here ? k : 0));
  }
  const int chunk = at.lane / at.apart % at.lanes;  // its place among those of its warp

#pragma unroll 1
  for (;; tile++) {
    const Index first = tile * rows;
    for (int k = threadIdx.x; k <= at.width; k += blockDim.x) marks[k] = 0;  // all have read them, or they are 0
    __syncthreads();
    load<Rows, TOGETHER>(values, job, X, offsets + at.width, first, at);
    if (Rows::operands == 2) load<Rows, TOGETHER>(beside, job, COEFFICIENT, offsets + 2 * at.width, first, at);
    wait_for_copies();
    __syncthreads();
    if (Rows::operands == 2 && !job.given && first + at.p == 0) chunk_rows.a[0] = T(0);

    // what the chunks of a warp make, up to each
    Part own = chunk_rows.part();
    bool sound = Rows::sound(own);
#pragma unroll 1
    for (int step = 1; step < at.lanes; step *= 2) {
      const Part before = from_lane(own, at.lane - step * at.apart);
      if (chunk >= step) own = Rows::join(before, own);
      sound = sound && Rows::sound(own);
    }
    if (!sound && at.s < at.here) {
      atomicOr(&marks[at.s], UNSOUND | UNTOLD);
      atomicOr(&marks[at.width], UNSOUND);
    }
    if (chunk == at.lanes - 1) totals[entry] = own;
    __syncthreads();

    if (CHAINED) {
      Looker look;
      look.lane = at.lane, look.lanes = int(job.lanes);
      look.own = at.lane & (look.lanes - 1), look.first = at.lane - look.own;
      const int at_once = WARP / look.lanes;
#pragma unroll 1
      for (int k = at.warp * at_once; k < at.here; k += int(blockDim.x) / WARP * at_once) {
        const int s = k + look.first / look.lanes;
        look.there = s < at.here, look.sequence = at.first + s;
        Part total = totals[look.there ? s : 0];
        bool trusted = look.there && !(marks[s] & UNTOLD);
        for (int q = 1; q < at.warps && trusted; q++) total = Rows::join(total, totals[q * at.width + s]);
        trusted = trusted && Rows::sound(total);
        int left;
        const State before = pass_on(job, chain, tile, look, total, trusted, left);
        if (look.own || !look.there) continue;
        states[s] = before;
        if (left) marks[s] = left, atomicOr(&marks[at.width], UNSOUND);
      }
      __syncthreads();
    }

    // the value before the chunk, and behind the tile
    State state = states[at.s], before = state;
#pragma unroll 1
    for (int q = 0; q < at.warps; q++) {
      if (q == at.rank) before = state;
      state = Rows::apply(totals[q * at.width + at.s], state);
      sound = sound && Rows::sound(state);
    }
    const Part others = from_lane(own, at.lane - at.apart);
    if (chunk > 0) before = Rows::apply(others, before);
    sound = sound && Rows::sound(before);
    if (!sound && at.s < at.here) {
      atomicOr(&marks[at.s], UNSOUND);
      atomicOr(&marks[at.width], UNSOUND);
    }
    __syncthreads();
    const bool alone = marks[at.s] & UNSOUND;
    if (marks[at.width]) {  // of all threads alike
#pragma unroll 1
      for (int p = 0; p < at.count; p++) {
        if (at.p == p && alone) {
          State y = before = states[at.s];
          chunk_rows.each([&](int, T x, T a) { Rows::step(y, x, a); });
          states[at.s] = y;
        }
        __syncthreads();
      }
      if (CHAINED && at.p == 0 && at.s < at.here && marks[at.s] & UNTOLD) {
        const Index k = tile * job.sequences + sequence;
        chain.tiles.tell_state(k, states[at.s], chain.tiles.heard(k));
        if (marks[at.s] & GROUP) chain.groups.tell_state(tile / job.span * job.sequences + sequence, states[at.s], NOTHING);
      }
    }
    if (!CHAINED && !alone && at.p == 0) states[at.s] = state;

    chunk_rows.find_values(before);
    __syncthreads();
    store<Rows, TOGETHER>(values, job, offsets, first, at);
    if (CHAINED || first + rows >= job.n) return;
  }
}

// Blocks of a multiprocessor: as many as shared memory has room for, or fewer where registers would not do.
template <typename Rows, bool CHAINED> struct Blocks {
  static constexpr int size = sizeof(typename Rows::Part), chained = size <= 32 ? 4 : size <= 48 ? 3 : 2;
  static constexpr int most = size <= 24 ? 5 : CHAINED ? chained : 4;
};

template <typename T, bool TOGETHER, bool CHAINED>
__global__ void __launch_bounds__(128, (Blocks<LinearRows<T>, CHAINED>::most)) linear_tiles(Job job) {
  scan<LinearRows<T>, TOGETHER, CHAINED>(job);
}

template <typename T, bool TOGETHER, bool CHAINED>
__global__ void __launch_bounds__(128, (Blocks<LogarithmicRows<T>, CHAINED>::most)) logarithmic_tiles(Job job) {
  scan<LogarithmicRows<T>, TOGETHER, CHAINED>(job);
}

template <typename T, bool TOGETHER, bool CHAINED>
__global__ void __launch_bounds__(128, (Blocks<WeightedRows<T>, CHAINED>::most)) weighted_tiles(Job job) {
  scan<WeightedRows<T>, TOGETHER, CHAINED>(job);
}
