// Updates that also write 16-bit copies of the parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "optim/table.h"

namespace qtrain {
namespace {

constexpr std::int64_t kSizes[] = {512, 256, 300, 512};

/// Parameters, and bf16 copies of all but the second.
struct CopiedParameters {
  ParamStore weights{"weights"}, copies{"copies"};
  std::vector<Param*> params;
  std::map<const Param*, const Param*> copy_of;

  CopiedParameters() {
    for (const std::int64_t n : kSizes) {
      const std::string name(1, static_cast<char>('a' + params.size()));
      params.push_back(&weights.declare({.name = name, .shape = {n}, .update = Update::trained}));
      if (n != 256) copy_of[params.back()] = &copies.declare({.name = name, .shape = {n}, .dtype = DType::bf16});
    }
    weights.allocate();
    copies.allocate();
    for (const Param* p : params)
      for (std::int64_t i = 0; i < p->value.numel(); ++i) {
        p->value.as<float>()[i] = std::sin(static_cast<float>(i) * 1.37F);
        p->grad.as<float>()[i] = std::cos(static_cast<float>(i) * 0.71F);
      }
    for (const auto& [p, copy] : copy_of)
      for (Bf16& x : copy->value.span<Bf16>()) x = Bf16(7.0F);
  }
  Tensor copy(const Param& p) const {
    const auto found = copy_of.find(&p);
    return found == copy_of.end() ? Tensor{} : found->second->value;
  }
};

void update_once(Ctx& ctx, Optimizer& optimizer) {
  DeviceNumbers sums({}, 2);
  sums.clear(ctx);
  optimizer.send(ctx, {.learning_rate = 0.01});
  optimizer.update(ctx, sums.all());
}

class WrittenCopies : public ::testing::TestWithParam<const char*> {};

TEST_P(WrittenCopies, AreTheRoundedParameters) {
  for (const Placement placement : {Placement::device, Placement::pinned}) {
    Ctx ctx;
    CopiedParameters p;
    Optimizer optimizer(ctx, make_rule({.name = GetParam(), .weight_decay = 0.1}), p.params, placement);
    optimizer.allocate(ctx);
    optimizer.state().initialize(ctx, 0);
    optimizer.write_copies([&](const Param& of) { return p.copy(of); });
    update_once(ctx, optimizer);
    for (const Param* param : p.params) {
      const Tensor copy = p.copy(*param);
      EXPECT_EQ(optimizer.writes_copy(*param), static_cast<bool>(copy));
      for (std::int64_t i = 0; copy && i < copy.numel(); ++i)
        ASSERT_EQ(static_cast<float>(copy.as<Bf16>()[i]), static_cast<float>(Bf16(param->value.as<float>()[i])))
            << param->spec.name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, WrittenCopies,
                         ::testing::Values("adamw_torch", "adamw_8bit", "lion_32bit", "lion_8bit", "sgd"),
                         [](const auto& info) { return std::string(info.param); });

// Such rules leave all copies to others.
TEST(CopiesNotWritten, AreThoseOfARuleThatCannotWriteThem) {
  for (const char* optim : {"adafactor", "muon"}) {
    Ctx ctx;
    CopiedParameters p;
    Optimizer optimizer(ctx, make_rule({.name = optim}), p.params);
    optimizer.allocate(ctx);
    optimizer.state().initialize(ctx, 0);
    optimizer.write_copies([&](const Param& of) { return p.copy(of); });
    update_once(ctx, optimizer);
    for (const auto& [param, copy] : p.copy_of) {
      EXPECT_FALSE(optimizer.writes_copy(*param)) << optim;
      EXPECT_EQ(static_cast<float>(copy->value.as<Bf16>()[0]), 7.0F) << optim;
    }
  }
}

}  // namespace
}  // namespace qtrain
