// Properties that attention's results must have exactly. With tolerances, one visible key too many among a hundred
// would go unnoticed; bitwise comparison shows it.
#include <array>

#include "kernels/attention.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/parted_attention.h"

namespace qtrain::testing {
namespace {

constexpr std::int64_t kTokens = 200;

struct AttentionInputs {
  Array q, k, v, dy;

  explicit AttentionInputs(std::int64_t width) {
    std::uint64_t seed = 0;
    for (Array* a : {&q, &k, &v, &dy}) *a = random(DType::bf16, {kTokens, 1, width}, ++seed);
  }
};

/// Tokens [first, end), and none of the others.
Array rows_of(const Array& a, std::int64_t first, std::int64_t end) {
  const std::int64_t width = a.shape()[2];
  Array rows(a.dtype(), {end - first, 1, width});
  for (std::int64_t i = 0; i < rows.size(); ++i) rows.set(i, a.get(first * width + i));
  return rows;
}

/// Changes the values of tokens [first, end).
void replace(Array& a, std::int64_t first, std::int64_t end) {
  const std::int64_t width = a.size() / kTokens;
  for (std::int64_t i = first * width; i < end * width; ++i) a.set(i, -8 * a.get(i) - 1);
}

struct AttentionResults {
  Array y, dq, dk, dv;
};
/// Where documents begin and end, and whether the gradients get memory for sums.
struct Masked {
  std::vector<std::int32_t> borders;
  std::int64_t window = 0;
  bool memory = false;
};
/// Two documents, the second of which starts at `border`; 0: one document.
std::vector<std::int32_t> two_documents(std::int32_t border) {
  return border > 0 ? std::vector<std::int32_t>{0, border, kTokens} : std::vector<std::int32_t>{0, kTokens};
}
AttentionResults attention_of(AttentionInputs in, const Masked& n) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const Shape shape = in.q.shape();
  AttentionResults r{
      .y = {DType::bf16, shape}, .dq = {DType::bf16, shape}, .dk = {DType::bf16, shape}, .dv = {DType::bf16, shape}};
  Array memory(DType::f32, {static_cast<std::int64_t>(ops::attention_sum_bytes(shape[0], shape[2]) / 4)});
  Array lse(DType::f32, {1, shape[0]}), borders = integers(n.borders);
  const double scale = 0.125;
  ops::attention(ctx, {.y = r.y,
                       .lse = lse,
                       .q = in.q,
                       .k = in.k,
                       .v = in.v,
                       .cu_seqlens = borders,
                       .window = n.window,
                       .scale = scale});
  ops::attention_grad(ctx, {.dq = store(r.dq),
                            .dk = store(r.dk),
                            .dv = store(r.dv),
                            .dy = in.dy,
                            .y = r.y,
                            .q = in.q,
                            .k = in.k,
                            .v = in.v,
                            .lse = lse,
                            .cu_seqlens = borders,
                            .window = n.window,
                            .scale = scale,
                            .memory = n.memory ? memory.tensor() : Tensor{}});
  ctx.synchronize();
  for (const Array* a : {&r.y, &r.dq, &r.dk, &r.dv}) a->bytes();
  return r;
}

void expect_same_tokens(const Array& a, const Array& b, std::int64_t first, std::int64_t end) {
  const std::int64_t width = a.size() / kTokens;
  for (std::int64_t i = first * width; i < end * width; ++i)
    ASSERT_EQ(a.get(i), b.get(i)) << "token " << i / width << " of width " << width;
}

/// A head width, a compute capability (9.0 has kernels of its own), and whether there is memory for all gradients to be
/// computed in one kernel.
struct MaskedHeads {
  std::int64_t width;
  int capability;
  bool memory = false;
};
class CausalMask : public ::testing::TestWithParam<MaskedHeads> {
 protected:
  static AttentionResults results(const AttentionInputs& in, const std::vector<std::int32_t>& borders,
                                  std::int64_t window = 0) {
    AttentionResults r;
    with_capability(GetParam().capability, [&] { r = attention_of(in, {borders, window, GetParam().memory}); });
    return r;
  }
  static AttentionResults results(const AttentionInputs& in, std::int32_t border, std::int64_t window = 0) {
    return results(in, two_documents(border), window);
  }
  static void expect_hidden(const AttentionInputs& in, const std::vector<std::int32_t>& borders, std::int32_t border) {
    const AttentionResults want = results(in, borders);
    AttentionInputs first = in, second = in;
    for (Array* a : {&first.q, &first.k, &first.v, &first.dy}) replace(*a, 0, border);
    for (Array* a : {&second.q, &second.k, &second.v, &second.dy}) replace(*a, border, kTokens);
    const AttentionResults of_second = results(first, borders), of_first = results(second, borders);
    for (const auto member :
         {&AttentionResults::y, &AttentionResults::dq, &AttentionResults::dk, &AttentionResults::dv}) {
      expect_same_tokens(of_first.*member, want.*member, 0, border);
      expect_same_tokens(of_second.*member, want.*member, border, kTokens);
    }
  }
};

// Queries and their gradients do not depend on later keys; gradients of keys do not depend on earlier queries.
TEST_P(CausalMask, HidesWhatComesLater) {
  constexpr std::int32_t kBorder = 2;  // tiles of keys begin with the second document
  const AttentionInputs in(GetParam().width);
  const AttentionResults want = results(in, kBorder);
  for (const std::int64_t next : {3, 33, 65, 97, 129, 193}) {
    AttentionInputs later = in, earlier = in;
    for (Array* a : {&later.k, &later.v}) replace(*a, next, kTokens);
    for (Array* a : {&earlier.q, &earlier.dy}) replace(*a, kBorder, next);
    const AttentionResults of_earlier = results(later, kBorder), of_later = results(earlier, kBorder);
    expect_same_tokens(of_earlier.y, want.y, 0, next);
    expect_same_tokens(of_earlier.dq, want.dq, 0, next);
    expect_same_tokens(of_later.dk, want.dk, next, kTokens);
    expect_same_tokens(of_later.dv, want.dv, next, kTokens);
  }
}

// Boundaries one token after and one token before those of tiles.
TEST_P(CausalMask, HidesTheOtherDocument) {
  const AttentionInputs in(GetParam().width);
  for (const std::int32_t border : {1, 2, 95, 127}) {
    SCOPED_TRACE(border);
    expect_hidden(in, two_documents(border), border);
  }
}

// Documents of so few tokens share tiles.
TEST_P(CausalMask, HidesOtherDocumentsOfATile) {
  const AttentionInputs in(GetParam().width);
  for (const std::int32_t border : {3, 95, 127}) {
    SCOPED_TRACE(border);
    expect_hidden(in, {0, 1, 2, border, border + 1, kTokens}, border);
  }
}

// Documents begin with tiles of their own, whatever comes before and after them. For three, 192 tokens are enough.
TEST_P(CausalMask, GivesADocumentItsBitsAnywhere) {
  const AttentionInputs in(GetParam().width);
  const auto part_of = [&](std::int64_t first, std::int64_t end) {
    AttentionInputs part = in;
    for (Array* a : {&part.q, &part.k, &part.v, &part.dy}) *a = rows_of(*a, first, end);
    return part;
  };
  for (const auto& [first, end, tokens] : {std::array<std::int32_t, 3>{29, 171, kTokens}, {29, 128, 192}}) {
    SCOPED_TRACE(tokens);
    const AttentionResults among = results(part_of(0, tokens), {0, first, end, tokens});
    const AttentionResults want = results(part_of(first, end), {0, end - first});
    EXPECT_TRUE(rows_of(among.y, first, end).bytes() == want.y.bytes());
    if (!GetParam().memory) continue;  // otherwise gradients have tiles of the batch
    for (const auto member : {&AttentionResults::dq, &AttentionResults::dk, &AttentionResults::dv})
      EXPECT_TRUE(rows_of(among.*member, first, end).bytes() == (want.*member).bytes());
  }
}

// The window ends one token before the end of a tile of queries, for the first keys of some warp in both tile widths.
TEST_P(CausalMask, HidesWhatIsBehindTheWindow) {
  constexpr std::int64_t kWindow = 127;
  const AttentionInputs in(GetParam().width);
  const AttentionResults want = results(in, 0, kWindow);
  for (const std::int64_t query : {kWindow, kWindow + 16, kWindow + 33}) {
    const std::int64_t key = query - kWindow;  // queries from here on do not see it
    AttentionInputs later = in, earlier = in;
    for (Array* a : {&later.q, &later.dy}) replace(*a, query, kTokens);
    for (Array* a : {&earlier.k, &earlier.v}) replace(*a, 0, key + 1);
    const AttentionResults of_earlier = results(later, 0, kWindow), of_later = results(earlier, 0, kWindow);
    expect_same_tokens(of_earlier.dk, want.dk, 0, key + 1);
    expect_same_tokens(of_earlier.dv, want.dv, 0, key + 1);
    expect_same_tokens(of_later.y, want.y, query, kTokens);
    expect_same_tokens(of_later.dq, want.dq, query, kTokens);
  }
}

struct CachedForm {
  const char* name;
  std::int64_t heads = 4, groups = 2, width = 80;
  std::vector<std::int32_t> positions = {4, 149, 0};  ///< one token each
  std::int64_t window = 0;
  double softcap = 0;
  bool sinks = false;
};
/// Tokens that see 1 + position keys of a cache of two rows, fewer with a window.
std::vector<double> cached_attention_of(Ctx& ctx, DType d, const CachedForm& form) {
  const auto count = static_cast<std::int64_t>(form.positions.size());
  const std::int64_t capacity = *std::ranges::max_element(form.positions) + 11;
  const Shape tokens{count, form.heads, form.width}, cache{2, capacity, form.groups, form.width};
  Array q = random(d, tokens, 1), keys = random(d, cache, 2), values = random(d, cache, 3), y(d, tokens);
  std::vector<std::int32_t> row_of;
  for (std::int64_t t = 0; t < count; ++t) row_of.push_back(static_cast<std::int32_t>((t + 1) % 2));
  Array rows = integers(row_of), positions = integers(form.positions);
  Array sinks = random(d == DType::f64 ? d : DType::f32, {form.heads}, 4);
  ops::cached_attention(ctx, {.y = y,
                              .q = q,
                              .keys = keys,
                              .values = values,
                              .rows = rows,
                              .positions = positions,
                              .window = form.window,
                              .scale = 0.2,
                              .softcap = form.softcap,
                              .sinks = form.sinks ? ConstTensor(sinks.tensor()) : ConstTensor{}});
  ctx.synchronize();
  return y.values();
}

/// Positions of so many tokens that there are enough blocks without dividing the keys of a token.
std::vector<std::int32_t> many_positions() {
  std::vector<std::int32_t> positions(270, 3);
  positions[1] = 600;
  return positions;
}

// The sections have 256 keys.
TEST(CachedAttentionOnCuda, FollowsTheProcessor) {
  const std::vector<std::int32_t> sections{255, 256, 1100};
  for (const CachedForm& form :
       {CachedForm{"small"}, CachedForm{"window", 4, 2, 80, {4, 149, 0}, 37},
        CachedForm{"softcap", 4, 2, 80, {4, 149, 0}, 0, 1.5}, CachedForm{"both", 4, 2, 80, {4, 149, 0}, 37, 1.5},
        CachedForm{"sinks", 4, 2, 80, {4, 149, 0}, 37, 0, true}, CachedForm{"sections", 8, 2, 128, sections},
        CachedForm{"window_of_sections", 6, 2, 64, sections, 700, 1.5, true},
        CachedForm{"many_queries", 14, 2, 256, sections}, CachedForm{"own_heads", 3, 3, 64, sections},
        CachedForm{"no_packs", 4, 2, 90, sections, 0, 0, true}, CachedForm{"tokens", 4, 2, 32, many_positions()}}) {
    SCOPED_TRACE(form.name);
    Ctx cpu({}, MatmulPrecision::storage, 1);
    const std::vector<double> want = cached_attention_of(cpu, DType::f64, form);
    for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
      const OnDevice device;
      Ctx cuda(kCuda, MatmulPrecision::storage, 1);
      const std::vector<double> got = cached_attention_of(cuda, d, form);
      const double tolerance = d == DType::f32 ? 1e-5 : 0.03;  // for sums of random values; y has 8 bits in bfloat16
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << name_of(d) << " " << i;
    }
  }
}

// One row in sections on blocks of their own, and the same row among so many that a block takes all of its sections.
TEST(CachedAttentionOnCuda, GivesTheSameBitsForOneRowAndForMany) {
  const OnDevice device;
  Ctx cuda(kCuda, MatmulPrecision::storage, 1);
  for (const bool sinks : {false, true}) {
    CachedForm many{"many", 4, 2, 64, many_positions(), 0, sinks ? 1.5 : 0, sinks};
    CachedForm few = many;
    few.positions.resize(3);
    const std::vector<double> of_many = cached_attention_of(cuda, DType::f32, many),
                              of_few = cached_attention_of(cuda, DType::f32, few);
    for (std::size_t i = 0; i < of_few.size(); ++i) ASSERT_EQ(of_few[i], of_many[i]) << i;
  }
}

// The table has room for so long a row that the results of its sections fit into scratch memory for a part of the heads
// only, or not even for one head of the cache.
TEST(CachedAttentionOnCuda, TakesRowsOfAnyLength) {
  for (const std::int64_t width : {40'000, 130'000}) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(width), -1);
    for (std::int32_t i = 0; i < 40; ++i) table[static_cast<std::size_t>(i)] = (7 * i + 3) % 41;
    const auto run = [&](Ctx& ctx, DType d) {
      Array q = random(d, {1, 64, 32}, 1), keys = random(d, {41, 16, 4, 32}, 2), values = random(d, {41, 16, 4, 32}, 3);
      Array y(d, {1, 64, 32}), rows = integers({0}), positions = integers({600}), blocks = integers(table);
      ops::cached_attention(ctx, {.y = y,
                                  .q = q,
                                  .keys = keys,
                                  .values = values,
                                  .rows = rows,
                                  .positions = positions,
                                  .blocks = blocks.tensor().reshaped({1, width}),
                                  .scale = 0.2});
      ctx.synchronize();
      return y.values();
    };
    Ctx cpu({}, MatmulPrecision::storage, 1);
    const std::vector<double> want = run(cpu, DType::f64);
    const OnDevice device;
    Ctx cuda(kCuda, MatmulPrecision::storage, 1);
    const std::vector<double> got = run(cuda, DType::bf16);
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 0.03) << width << " " << i;
  }
}

/// Appends keys and values to blocks of 16, and attends to 150 of them.
TEST(CachedAttentionOnCuda, FollowsTheProcessorOverBlocks) {
  std::vector<std::int32_t> position(150), row(150, 1), table(20, -1);
  for (std::size_t i = 0; i < position.size(); ++i) position[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < 10; ++i) table[10 + i] = static_cast<std::int32_t>((7 * i + 3) % 11);
  const auto run = [&](Ctx& ctx, DType d) {
    Array q = random(d, {150, 2, 80}, 1), x = random(d, {150, 1, 80}, 2), cache(d, {11, 16, 1, 80}), y(d, {150, 2, 80});
    Array rows = integers(row), positions = integers(position), blocks = integers(table);
    const ConstTensor by_row = blocks.tensor().reshaped({2, 10});
    ops::cache_append(ctx, {.cache = cache, .x = x, .rows = rows, .positions = positions, .blocks = by_row});
    ops::cached_attention(ctx, {.y = y,
                                .q = q,
                                .keys = cache,
                                .values = cache,
                                .rows = rows,
                                .positions = positions,
                                .blocks = by_row,
                                .scale = 0.2});
    ctx.synchronize();
    return y.values();
  };
  Ctx cpu({}, MatmulPrecision::storage, 1);
  const std::vector<double> want = run(cpu, DType::f64);
  for (const DType d : {DType::f32, DType::bf16}) {
    const OnDevice device;
    Ctx cuda(kCuda, MatmulPrecision::storage, 1);
    const std::vector<double> got = run(cuda, d);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], d == DType::f32 ? 1e-5 : 0.03) << name_of(d) << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, CausalMask,
                         ::testing::Values(MaskedHeads{64, 80}, MaskedHeads{64, 90}, MaskedHeads{128, 80},
                                           MaskedHeads{64, 80, true}, MaskedHeads{128, 80, true}, MaskedHeads{128, 90},
                                           MaskedHeads{64, 90, true}, MaskedHeads{128, 90, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.width) + "_on_" + std::to_string(info.param.capability) +
                                  (info.param.memory ? "_with_memory" : "");
                         });

/// Both kinds of kernels: cuts inside documents and tiles and at their boundaries, and pieces of one token.
struct PartCase {
  AttentionSizes sizes;
  std::vector<std::int64_t> cuts;
};

TEST(AttentionPartOnCuda, AddsUpToTheWhole) {
  const std::vector<PartCase> cases{
      {{.name = "grouped", .cu = {0, 30, 31, 100, 180}, .Hq = 4, .Hkv = 2, .D = 16}, {0, 45, 90, 135}},
      {{.name = "window", .cu = {0, 33, 150}, .Hq = 2, .Hkv = 1, .D = 64, .window = 37}, {0, 1, 128}},
      {{.name = "softcap", .cu = {0, 170}, .Hq = 2, .Hkv = 2, .D = 128, .softcap = 1.5}, {0, 64, 169}},
      {{.name = "sinks", .cu = {0, 1, 2, 2, 7, 140}, .Hq = 6, .Hkv = 2, .D = 64, .sinks = true}, {0, 7, 35}},
      {{.name = "sums", .cu = {0, 30, 31, 100, 330}, .Hq = 4, .Hkv = 2, .D = 16, .memory = 4}, {0, 45, 90, 200}},
      {{.name = "sums_window", .cu = {0, 33, 290}, .Hq = 2, .Hkv = 1, .D = 80, .window = 137, .memory = 2},
       {0, 1, 128}},
      {{.name = "sums_warpgroups", .cu = {0, 30, 300}, .Hq = 4, .Hkv = 2, .D = 64, .memory = 4}, {0, 45, 200}},
      {{.name = "sums_wide_heads", .cu = {0, 33, 290}, .Hq = 2, .Hkv = 1, .D = 128, .window = 137, .memory = 2},
       {0, 1, 128}},
      {{.name = "wide", .cu = {0, 2, 100}, .Hq = 2, .Hkv = 1, .D = 256}, {0, 50}}};
  for (const PartCase& c : cases) {
    Ctx cpu({}, MatmulPrecision::storage, 1);
    const PartedAttention exact(cpu, c.sizes, DType::f64, {0});
    for (const DType d : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(c.sizes.name + " in " + std::string(name_of(d)));
      const OnDevice device;
      Ctx ctx(kCuda, MatmulPrecision::storage, 1);
      const PartedAttention parts(ctx, c.sizes, d, c.cuts);
      ctx.synchronize();
      // Sums of up to 180 terms of order 1; in bfloat16, operands are rounded, and each part is rounded when it is
      // added.
      const double sums = d == DType::f32 ? 2e-4 : 0.25, means = d == DType::f32 ? 1e-5 : 0.02;
      expect_near(parts.y, exact.y, means, "y");
      expect_near(parts.lse, exact.lse, means, "lse");
      expect_near(parts.dq, exact.dq, d == DType::f32 ? 1e-4 : 0.1, "dq");
      expect_near(parts.dk, exact.dk, sums, "dk");
      expect_near(parts.dv, exact.dv, sums, "dv");
    }
  }
}

}  // namespace
}  // namespace qtrain::testing
